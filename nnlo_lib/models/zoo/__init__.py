"""Named networks, one file per family."""
