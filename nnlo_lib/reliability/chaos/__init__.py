"""Fault campaigns: train with random faults and compare the result with an undisturbed training."""
