"""Algorithms of distributed training: when replicas exchange what, and what they do with it."""
