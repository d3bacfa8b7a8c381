"""Algorithms whose ranks send to peers without waiting for all of them."""
