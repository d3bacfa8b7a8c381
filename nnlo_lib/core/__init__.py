"""Errors, files, locks, processes, batch systems, random streams: what every package may import."""
