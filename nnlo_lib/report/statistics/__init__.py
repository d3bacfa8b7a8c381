"""Statistical comparison of runs and of trials."""
