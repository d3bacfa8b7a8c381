"""Algorithms that average gradients or parameters by collective operations, and the baseline without any."""
