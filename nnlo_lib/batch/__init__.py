"""Jobs of the batch systems Slurm and LSF: states, queries, refused submissions, and a job's own record."""

from nnlo_lib.batch.batch_job import BatchJob

__all__ = ["BatchJob"]
