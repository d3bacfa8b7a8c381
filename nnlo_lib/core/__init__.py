"""Modules that every package may import: errors, files, locks, processes, batch systems, random streams."""
