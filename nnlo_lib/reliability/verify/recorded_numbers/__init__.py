"""Checks of recorded numbers against the files that they come from."""
