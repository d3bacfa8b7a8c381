"""The report's sections on runs."""
