"""Translate configurations of NNLO, mpi_learn, PyDTNN, Theano-MPI and DiNNO into experiments."""
