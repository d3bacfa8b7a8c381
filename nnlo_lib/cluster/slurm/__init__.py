"""Slurm as a source of facts about jobs and partitions."""
