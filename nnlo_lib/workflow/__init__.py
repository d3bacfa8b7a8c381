"""What Snakemake's rules and `nnlo run` ask: targets, resources and search jobs."""
