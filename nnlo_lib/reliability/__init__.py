"""Verification of finished runs, and fault campaigns."""
