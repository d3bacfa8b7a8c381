"""Targets, resources and search jobs for Snakemake's rules and `nnlo run`."""
