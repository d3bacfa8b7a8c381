"""Algorithms in which ranks send to peers without waiting for all of them."""
