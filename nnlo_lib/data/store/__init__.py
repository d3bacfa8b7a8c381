"""The data store: shards, manifest and conversion."""
