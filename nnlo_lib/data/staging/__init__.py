"""Copy of a store on the disk of a node."""
