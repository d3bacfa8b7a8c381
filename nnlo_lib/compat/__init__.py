"""Compatibility with five older systems; only `nnlo import` and nnlo_lib.mpi_learn use this package."""
