"""Results of an experiment of which some trainings failed: what finished, what did not, and that both are to be written again."""

import json
import time
from pathlib import Path

from nnlo_lib.config import JobSpec, Run
from nnlo_lib.config.paths import ExperimentPaths, RunPaths
from nnlo_lib.core.atomic_file import atomic_write
from nnlo_lib.report.sections.failed_jobs import read_failed_job
from nnlo_lib.state.published_results import is_outdated
from nnlo_lib.workflow.plan import Plan


def divide_jobs(plan: Plan) -> tuple[list[str], list[str]]:
    """Return the folders of the finished jobs and of the other jobs of an experiment.

    A job is finished if it is trained and evaluated with the present settings, data and code.
    """
    finished: list[str] = []
    unfinished: list[str] = []
    for job in plan.evaluated_jobs:
        paths = ExperimentPaths(plan.experiment.name).job(job)
        (finished if _is_finished(plan, job, paths) else unfinished).append(str(paths.folder))
    return finished, unfinished


def describe_failures(unfinished: list[str], page: str) -> str:
    """Return what failed and why, one line for each job.

    Args:
        unfinished: folders of the jobs that did not finish, at least one.
        page: path of the page that shows the finished jobs; empty if there is none.
    """
    lines = [f"  {folder}: {read_failed_job(Path(folder)).cause}" for folder in unfinished]
    shown = f"; {page} shows the others" if page else ""
    advice = "to train them, correct the cause and run the same command again"
    return "\n".join([f"nnlo: error: trainings without results: {len(unfinished)}{shown}; {advice}", *lines])


def partial_stamp(plan: Plan) -> list[str]:
    """Return the path of a file that exists if summary and page ever lacked trainings that failed, else an empty list.

    Snakemake did not write such a summary and has no record of it. As an input, the file makes Snakemake write
    both again, also if a later edit of the experiment leaves only inputs that an earlier summary had.
    """
    stamp = _stamp(plan)
    return [str(stamp)] if stamp.exists() else []


def mark_as_partial(plan: Plan) -> None:
    """Record that summary and page, which were just written, lack trainings. Raises UserError."""
    with atomic_write(_stamp(plan)) as part:
        # New content, because Snakemake ignores a newer input whose checksum it has recorded.
        part.write_text(str(time.time_ns()))


def _stamp(plan: Plan) -> Path:
    return ExperimentPaths(plan.experiment.name).workflow_state.folder / "partial.txt"


def _is_finished(plan: Plan, job: JobSpec, paths: RunPaths) -> bool:
    if not (paths.summary.exists() and paths.evaluation.exists()):
        return False
    # An evaluation older than the summary belongs to an earlier training in the folder.
    if paths.evaluation.stat().st_mtime_ns < paths.summary.stat().st_mtime_ns:
        return False
    if job.run in plan.runs:
        return not is_outdated(paths.folder, plan.runs[job.run], Path(plan.manifest(job.run)))
    return not is_outdated(paths.folder, _best_run(plan, job), Path(plan.base_manifest))


def _best_run(plan: Plan, job: JobSpec) -> Run:
    """Return the run that retrains the best trial of a search, as the search wrote it."""
    config = ExperimentPaths(plan.experiment.name).run_config(job.run)
    return Run.model_validate(json.loads(config.read_text())["run"])
