"""Translate command lines of PyDTNN."""
