"""Results that Snakemake must write again: outdated ones, and summaries that lack trainings that failed."""

import json
import os
import sys
import time
from collections.abc import Iterable
from pathlib import Path

from nnlo_lib.checkpoint.checkpoint_manifest import refuse_other_formats
from nnlo_lib.config import JobSpec, Run
from nnlo_lib.config.experiment import RunResources
from nnlo_lib.config.paths import ExperimentPaths
from nnlo_lib.core.atomic_file import atomic_write
from nnlo_lib.launch.former_results import find_former, set_aside_outdated
from nnlo_lib.report.sections.attempts import STOPPED_CAUSES, read_failed_job
from nnlo_lib.state.attempts import read_attempts
from nnlo_lib.state.finished_run import FinishedRun
from nnlo_lib.train.freshness import Freshness, continues, is_evaluated, status
from nnlo_lib.train.task import Task
from nnlo_lib.workflow.plan import Plan


def mark_outdated_results(plan: Plan) -> None:
    """Make the stamp of each job newer than its evaluation if its results are not current, else older than any.

    Snakemake notices edits by its own records, which results of `nnlo run` do not have, and knows only the evaluation: as
    an input of the training, the stamp makes Snakemake compare their times. The content is new, too, because
    Snakemake ignores a newer input whose checksum Snakemake has recorded.

    Raises UserError, before Snakemake deletes anything, for results that a training cannot replace: those of a longer
    training, and those with checkpoints of another format, which the training refuses.
    """
    # The best trial of a search is not known before the end of the search.
    configs = {job: ExperimentPaths(plan.experiment.name).run_config(job.run) for job in plan.evaluated_jobs}
    tasks = {job: task_of(plan, job) for job in configs if job.run in plan.runs or configs[job].exists()}
    found = {job: status(task).refuse_longer() for job, task in tasks.items()}
    for job, task in tasks.items():
        if found[job].kind != "finished":
            refuse_other_formats(task.paths.state.checkpoints)
    for job in plan.evaluated_jobs:
        stamp, outdated = stamp_path(plan, job), False
        if job in tasks:
            # Without an evaluation, Snakemake runs the job anyway.
            stale = tasks[job].paths.evaluation.exists() and not _is_current(tasks[job], found[job])
            outdated = found[job].kind == "outdated" or stale
        if outdated or not stamp.exists():
            with atomic_write(stamp) as part:
                part.write_text(str(time.time_ns()))
        os.utime(stamp, (time.time() if outdated else 0,) * 2)
    _print_exchanges(plan, [(task, found[job]) for job, task in tasks.items()])


def _is_current(task: Task, found: Freshness) -> bool:
    return found.kind == "finished" and is_evaluated(task)


def _print_exchanges(plan: Plan, found: list[tuple[Task, Freshness]]) -> None:
    """Print which results are set aside and which are moved back before the trainings."""
    folder = (
        f"{ExperimentPaths(plan.experiment.name).folder}/*/{'seed-*/' * (plan.experiment.folds > 1)}former/"
    )
    back = [task for task, each in found if each.kind in ("missing", "outdated") and find_former(task)]
    replaced: dict[str, list[Task]] = {}
    for task, each in found:
        if each.kind == "outdated" and (task in back or not continues(task, each)):
            replaced.setdefault(each.reason.removeprefix(f"{task.folder} "), []).append(task)
    for reason, tasks in replaced.items():
        hours = sum(_core_hours(task) for task in tasks)
        print(
            f"nnlo: trainings to set aside: {len(tasks)}, {hours:.2g} core hours ({tasks[0].folder} {reason}); the earlier "
            f"settings find them again in {folder}, which may be deleted",
            file=sys.stderr,
        )
    if back:
        print(f"nnlo: trainings to move back from {folder}, not to train again: {len(back)}", file=sys.stderr)
    if waiting := sum(each.kind == "finished" and not is_evaluated(task) for task, each in found):
        print(f"nnlo: trainings to evaluate, not to train again: {waiting}", file=sys.stderr)


def _core_hours(task: Task) -> float:
    """Return cores times hours of all attempts in the folder of a task."""
    run = FinishedRun(task.folder).config if task.paths.summary.exists() else task.run
    seconds = sum(attempt.seconds for attempt in read_attempts(task.state))
    return RunResources(run).cores * seconds / 3600


def set_aside_results(plan: Plan, jobs: Iterable[JobSpec]) -> None:
    """Set aside the results of jobs that are of other settings, with the evaluation, which Snakemake is about to delete.

    The training of the job moves them back if it finds them.

    Raises UserError if a launcher holds the lease of a job.
    """
    for job in jobs:
        set_aside_outdated(task_of(plan, job))


def stamp_path(plan: Plan, job: JobSpec) -> Path:
    """Return the path of the stamp of a job."""
    # With a suffix, because seed-1 can later be the folder of its folds.
    return ExperimentPaths(plan.experiment.name).workflow_state.folder / "outdated" / f"{job.path}.txt"


def divide_jobs(plan: Plan) -> tuple[list[str], list[str]]:
    """Return the folders of the finished jobs and of the other jobs of an experiment.

    A job is finished if it is trained and evaluated with the present settings, data and code.
    """
    finished: list[str] = []
    unfinished: list[str] = []
    for job in plan.evaluated_jobs:
        paths = ExperimentPaths(plan.experiment.name).job(job)
        # The task of a search's best run is not known before its training starts.
        is_finished = paths.summary.exists() and _is_current(task := task_of(plan, job), status(task))
        (finished if is_finished else unfinished).append(str(paths.folder))
    return finished, unfinished


def task_of(plan: Plan, job: JobSpec) -> Task:
    """Return the task of an evaluated job of an experiment."""
    if job.run in plan.runs:
        return plan.task(job)
    # The best trial of a search, as the search wrote it.
    paths = ExperimentPaths(plan.experiment.name)
    run = Run.model_validate(json.loads(paths.run_config(job.run).read_text())["run"])
    return Task(
        plan.experiment.name, job.run, run, job.seed, None, 1, Path(plan.base_manifest), paths.job(job).folder
    )


def describe_failures(unfinished: list[str], page: str) -> str:
    """Return what failed and why, one line for each folder of a job that did not finish.

    `page` is the path of the page that shows the finished jobs; it is empty if there is none.
    """
    causes = {folder: read_failed_job(Path(folder)).cause for folder in unfinished}
    if set(causes.values()) <= STOPPED_CAUSES:
        return f"nnlo: trainings that were stopped or not started: {len(causes)}; the same command resumes"
    lines = [f"  {folder}: {cause}" for folder, cause in causes.items()]
    shown = f"; {page} shows the others" if page else ""
    advice = "to train them, correct the cause and run the same command again"
    return "\n".join([f"nnlo: error: trainings without results: {len(unfinished)}{shown}; {advice}", *lines])


def mark_as_partial(folder: Path) -> None:
    """Record that summary and page in the folder of an experiment, which were just written, lack trainings. Raises UserError."""
    with atomic_write(folder / ExperimentPaths.partial.name) as part:
        # New content, because Snakemake ignores a newer input whose checksum it has recorded.
        part.write_text(str(time.time_ns()))


def partial_stamp(plan: Plan) -> list[str]:
    """Return the path of a file that exists if summary and page ever lacked trainings that failed, else an empty list.

    Snakemake did not write such a summary and has no record of it. As an input, the file makes Snakemake write
    both again, also if a later edit of the experiment leaves only inputs that an earlier summary had.
    """
    stamp = ExperimentPaths(plan.experiment.name).partial
    return [str(stamp)] if stamp.exists() else []
