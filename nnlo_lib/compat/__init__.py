"""Interfaces of and importers from five older systems; only `nnlo import` and nnlo_lib.mpi_learn use them."""
