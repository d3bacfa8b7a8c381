"""Executors of a search: how the fold tasks of trials are started and awaited."""
