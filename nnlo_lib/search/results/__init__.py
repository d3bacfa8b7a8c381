"""Results of a search: best.yaml, trials.csv and cost estimates."""
