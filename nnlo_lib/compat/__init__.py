"""Interfaces of and importers from the five older systems; nothing depends on this package."""
