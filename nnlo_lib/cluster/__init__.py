"""Jobs that a workflow submits to a batch system: what became of them, and what to do next. No module imports Snakemake."""
