"""Exchanged vectors in fewer bytes, with error feedback."""
