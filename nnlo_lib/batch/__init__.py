"""What NNLO knows about the batch systems Slurm and LSF."""
