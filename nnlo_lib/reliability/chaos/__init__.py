"""Fault campaigns: train under random faults, and compare with an undisturbed training."""
