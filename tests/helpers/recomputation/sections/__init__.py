"""Recomputation of each figure of the page of an experiment, by section."""
