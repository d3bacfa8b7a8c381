"""The report's section about a search."""
