"""Fetching, reading, conversion, partitioning and loading of data sets."""
