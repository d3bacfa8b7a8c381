"""Algorithms of distributed training: the vectors that replicas exchange, when, and the update rules."""
