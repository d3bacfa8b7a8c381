"""Compressors of exchanged vectors, with error feedback."""
