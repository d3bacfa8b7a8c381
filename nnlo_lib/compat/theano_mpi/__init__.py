"""Theano-MPI's Python interface on top of nnlo: rules that start a model class on all devices (docs/guides/theano_mpi.md)."""

from nnlo_lib.compat.theano_mpi.rule import BSPRule, EASGDRule, GOSGDRule

BSP, EASGD, GOSGD = BSPRule, EASGDRule, GOSGDRule  # the names in scripts

__all__ = ["BSP", "EASGD", "GOSGD"]
