"""What a search produces: best.yaml, trials.csv and cost estimates."""
