"""The report's sections about runs."""
