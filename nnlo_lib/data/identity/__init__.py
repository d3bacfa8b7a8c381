"""Identity of stores: the settings, code and original files that name a store."""
