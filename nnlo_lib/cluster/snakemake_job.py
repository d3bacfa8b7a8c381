"""A job of Snakemake, as its executor plugins get it: name, checksum, tries."""

from typing import Any

from nnlo_lib.cluster.submission.task_checksum import task_checksum

Job = Any  # of Snakemake


def job_name(job: Job) -> str:
    """Return the rule and the wildcards of a job, as a user knows the job."""
    return str(job.name) if job.is_group() else " ".join([str(job.rule.name), *map(str, list(job.wildcards))])


def job_checksum(job: Job) -> str:
    """Return the checksum of what a job does; an empty string for a group of jobs."""
    if job.is_group():
        return ""
    return task_checksum(str(job.rule.name), list(job.wildcards), list(job.params), list(job.input))


def end_tries(job: Job) -> None:
    """Let Snakemake count the next error of a job as the error of its last try."""
    job.attempt = max(job.attempt, job.restart_times + 1)


def compute_resources_again(job: Job) -> None:
    """Forget the resources of a job, for example its memory, which depends on its attempts."""
    job.attempt = job.attempt  # the setter does it


def is_training(job: Job) -> bool:
    """Return True if the job trains; only trainings have this resource."""
    return job.resources.get("on_preemption") is not None
