"""The report's section on a search."""
