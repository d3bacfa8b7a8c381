"""Sums of vectors in GPU memory."""
