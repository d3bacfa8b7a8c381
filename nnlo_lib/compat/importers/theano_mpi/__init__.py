"""Translate session files of Theano-MPI."""
