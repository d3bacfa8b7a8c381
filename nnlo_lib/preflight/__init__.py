"""Checks before anything starts: what an experiment names exists, and its model accepts its data."""
