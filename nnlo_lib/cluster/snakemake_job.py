"""Jobs of Snakemake, as its executor plugins get them: name, checksum, tries; and the profile that changes their resources."""

import ast
import re
from pathlib import Path
from typing import Any

import yaml

from nnlo_lib.cluster.submission.task_checksum import task_checksum
from nnlo_lib.core.errors import UserError

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


def read_profile(path: Path) -> dict[str, Any]:
    """Return the settings of a profile, or none if there is no such file. Raises UserError if it is no YAML."""
    if not path.exists():
        return {}
    try:
        settings = yaml.safe_load(path.read_text())
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise UserError(f"{path}: cannot read the profile ({error}); repair it") from None
    return settings if isinstance(settings, dict) else {}


def resource_value(value: Any) -> Any:
    """Return a resource of a profile as Snakemake evaluates it.

    Return None if the value depends on the job or the environment, or is text with a unit, such as `2h` or `4GB`.
    """
    if not isinstance(value, str):
        return value
    try:
        return ast.literal_eval(value)
    except (SyntaxError, ValueError):
        # A name is no expression for Snakemake, but text.
        return None if re.search(r"^\?|^[\d.]+ ?\w+$|\b(attempt|input|threads|wildcards)\b", value) else value
