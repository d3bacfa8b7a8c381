"""Results that Snakemake must write again, and what failed."""

import json
import sys
from collections.abc import Collection
from pathlib import Path

from nnlo_lib.checkpoint.checkpoint_manifest import refuse_other_formats
from nnlo_lib.config import JobSpec, Run
from nnlo_lib.config.experiment import RunResources
from nnlo_lib.config.paths import ExperimentPaths
from nnlo_lib.launch.former_results import find_former, set_aside
from nnlo_lib.report.made_from import page_sources, read_page_sources
from nnlo_lib.report.sections.attempts import STOPPED_CAUSES, read_failed_job
from nnlo_lib.state.attempts import read_attempts
from nnlo_lib.state.finished_run import FinishedRun
from nnlo_lib.train.freshness import Freshness, continues, is_evaluated, status
from nnlo_lib.train.task import Task
from nnlo_lib.workflow.plan import Plan


def examine(plan: Plan) -> dict[JobSpec, Freshness]:
    """Return what the folder of each job whose settings are known has of its results; print what a start moves.

    Raises UserError, before anything is deleted, for results that a training cannot replace: those of a longer
    training, and those with checkpoints of another format, which the training refuses.
    """
    # The best trial of a search is not known before the end of the search.
    configs = {job: ExperimentPaths(plan.experiment.name).run_config(job.run) for job in plan.evaluated_jobs}
    tasks = {job: task_of(plan, job) for job in configs if job.run in plan.runs or configs[job].exists()}
    found = {job: status(task).refuse_longer() for job, task in tasks.items()}
    for job, task in tasks.items():
        if found[job].kind != "finished":
            refuse_other_formats(task.paths.state.checkpoints)
    _print_exchanges(plan, [(task, found[job]) for job, task in tasks.items()])
    return found


def outdated_outputs(plan: Plan, experiment_file: str) -> set[str]:
    """Return the outputs of Snakemake's rules that the jobs must write again, also if the files exist.

    Contents decide: settings, data, code, evaluations. Times would not notice a deleted training below a finished page, and would
    take a file of a clock that is ahead for an edit.

    Raises UserError as `examine` does.
    """
    paths = ExperimentPaths(plan.experiment.name)
    found = examine(plan)
    stale = {
        str(paths.job(job).evaluation)
        for job, each in found.items()
        if not _is_current(task_of(plan, job), each)
    }
    search = paths.search.folder if plan.experiment.search else None
    sources = page_sources(Path(experiment_file), [paths.folder / folder for folder in plan.folders], search)
    made_from = read_page_sources(paths.page)
    if made_from["results"] != sources["results"]:
        stale |= {str(paths.summary), str(paths.comparisons)}
    return stale if made_from == sources else stale | {str(paths.page)}


def prepare_trainings(plan: Plan, started: Collection[str], forced: Collection[str]) -> None:
    """Set aside, of the jobs that will start, what a training would replace, before Snakemake deletes the evaluation.

    Args:
        started: outputs of the jobs that will start.
        forced: outputs that the user forces: a finished training is set aside, to be trained again from step 0.

    Raises UserError if a launcher holds the lease of a job.
    """
    paths = ExperimentPaths(plan.experiment.name)
    for job in plan.evaluated_jobs:
        output = str(paths.job(job).evaluation)
        if output in started and (job.run in plan.runs or paths.run_config(job.run).exists()):
            set_aside(task_of(plan, job), repeated=output in forced)


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
        hours = 0.0
        for task in tasks:
            run = FinishedRun(task.folder).config if task.paths.summary.exists() else task.run
            hours += RunResources(run).cores * sum(each.seconds for each in read_attempts(task.state)) / 3600
        print(
            f"nnlo: trainings to set aside: {len(tasks)}, {hours:.2g} core hours ({tasks[0].folder} {reason}); the earlier "
            f"settings find them again in {folder}, which may be deleted",
            file=sys.stderr,
        )
    if back:
        print(f"nnlo: trainings to move back from {folder}, not to train again: {len(back)}", file=sys.stderr)
    if waiting := sum(each.kind == "finished" and not is_evaluated(task) for task, each in found):
        print(f"nnlo: trainings to evaluate, not to train again: {waiting}", file=sys.stderr)


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
