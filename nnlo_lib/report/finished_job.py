"""Loading and grouping of the finished jobs of a report."""

from collections.abc import Iterable
from pathlib import Path

from nnlo_lib.core.errors import UserError
from nnlo_lib.state.finished_run import FinishedRun


def load_jobs(folders: Iterable[Path]) -> list[FinishedRun]:
    """Read job folders in the order given. Raises UserError if no folder is given or a job occurs twice."""
    jobs: dict[tuple[str, int, int | None], FinishedRun] = {}
    for job in map(_load, folders):
        if job.key in jobs:
            raise UserError(
                f"{job.folder} and {jobs[job.key].folder} contain the same run, seed and fold; pass only one of them"
            )
        jobs[job.key] = job
    if not jobs:
        raise UserError("no job folder given; pass one or more folders results/<experiment>/<run>/seed-<s>")
    return list(jobs.values())


def group_by_run(jobs: Iterable[FinishedRun]) -> dict[str, list[FinishedRun]]:
    """Group jobs by run, runs in order of first appearance."""
    groups: dict[str, list[FinishedRun]] = {}
    for job in jobs:
        groups.setdefault(job.run, []).append(job)
    return groups


def _load(folder: Path) -> FinishedRun:
    """Read the summary and the evaluation of a job at once, so that a damaged file is found before any work."""
    job = FinishedRun(folder)
    _ = job.summary, job.evaluation
    return job
