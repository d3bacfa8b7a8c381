"""Checks of settings that depend on each other, as generators of faults."""
