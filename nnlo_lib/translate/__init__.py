"""Translate what users of NNLO, mpi_learn, PyDTNN, Theano-MPI and DiNNO typed into an experiment."""
