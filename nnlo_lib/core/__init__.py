"""Modules that every package may import: errors, log, files, locks, processes, user code, random streams."""
