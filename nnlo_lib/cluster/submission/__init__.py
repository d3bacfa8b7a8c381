"""Submitted jobs: refusals, delays, and the files that belong to a submission."""
