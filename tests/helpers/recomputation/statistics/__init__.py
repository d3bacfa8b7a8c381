"""Recomputation of the statistical comparison of the runs."""
