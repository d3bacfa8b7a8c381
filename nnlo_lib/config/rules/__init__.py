"""Checks of settings that depend on each other."""
