"""Proof of what a finished run claims: verification and fault campaigns."""
