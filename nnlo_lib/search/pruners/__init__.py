"""Pruners: which trials continue to the next rung."""
