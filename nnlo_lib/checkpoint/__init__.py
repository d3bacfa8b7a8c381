"""Checkpoints of all ranks of a run: one file per rank, a manifest, visible only when complete."""
