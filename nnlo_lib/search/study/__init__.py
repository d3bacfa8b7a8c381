"""A study's state and decisions as pure functions of its files."""
