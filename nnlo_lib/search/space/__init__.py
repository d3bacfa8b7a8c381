"""Search spaces: dimensions, conditions and their validation."""
