"""Algorithms whose ranks average gradients or parameters by collective operations."""
