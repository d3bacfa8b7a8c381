"""Jobs of the batch systems Slurm and LSF: states, queries, refused submissions, and a job's own record."""

from nnlo_lib.batch.batch_job import BatchJob, parse_slurm_minutes
from nnlo_lib.batch.scheduler_query import query_scheduler

__all__ = ["BatchJob", "parse_slurm_minutes", "query_scheduler"]
