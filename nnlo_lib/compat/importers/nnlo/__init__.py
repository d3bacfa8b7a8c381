"""Translate command lines of NNLO and mpi_learn."""
