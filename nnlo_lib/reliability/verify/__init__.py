"""Check the files of a finished run for completeness and reproducibility."""
