"""Recomputation of each figure of the page of a search."""
