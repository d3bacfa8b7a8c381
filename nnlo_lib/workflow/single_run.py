"""Run one job of an experiment without Snakemake: fetch, convert, train, evaluate."""

import sys

from nnlo_lib.config import Experiment, JobSpec
from nnlo_lib.config.metrics import metric_column
from nnlo_lib.config.paths import ExperimentPaths
from nnlo_lib.core.atomic_file import atomic_write
from nnlo_lib.core.json_text import load_json
from nnlo_lib.launch.attempt import LaunchOptions, finished_note, train_task
from nnlo_lib.preflight.preflight import check_experiment
from nnlo_lib.state.attempt_outcome import AttemptOutcome
from nnlo_lib.train.freshness import status
from nnlo_lib.train.prepare_dataset import prepare_store
from nnlo_lib.train.task import Task
from nnlo_lib.workflow.plan import Plan


def run_single_training(experiment: Experiment, name: str, seed: int, fold: int | None, launcher: str) -> int:
    """Train and evaluate as `train_and_evaluate` does; return the exit status.

    Args:
        experiment: the experiment.
        name: name of the run.
        seed: the job's seed.
        fold: the job's fold; if it is None and the experiment has folds, the first.
        launcher: command that starts MPI ranks.
    """
    _, outcome = train_and_evaluate(experiment, name, seed, fold, launcher)
    return outcome.exit_status


def train_and_evaluate(
    experiment: Experiment, name: str, seed: int, fold: int | None, launcher: str
) -> tuple[Task, AttemptOutcome]:
    """Fetch and convert missing data, train, evaluate if the training finished; return task and outcome.

    Files have the same paths as in the workflow, so that either can resume the work of the other. If the
    training is finished and evaluated already, nothing is written.

    Args:
        experiment: the experiment.
        name: name of the run.
        seed: the job's seed.
        fold: the job's fold; if it is None and the experiment has folds, the first.
        launcher: command that starts MPI ranks.
    """
    task = job_task(experiment, name, seed, fold)
    # Before the conversion of new data, which may take hours.
    if status(task).refuse_longer().kind == "finished" and task.paths.evaluation.exists():
        print(finished_note(task), file=sys.stderr)
        _print_evaluation(task)
        return task, AttemptOutcome("finished")
    task = prepare_task(experiment, name, seed, fold)
    with atomic_write(ExperimentPaths(experiment.name).run_config(name)) as part:
        part.write_text(Plan.of(experiment).resolved_config(name))
    outcome = train_task(task, LaunchOptions(launcher))
    if outcome.exit_status == 0:
        _evaluate(task)
    return task, outcome


def prepare_task(experiment: Experiment, name: str, seed: int, fold: int | None, title: str = "") -> Task:
    """Return the task of one job after fetching and converting its data set.

    Args:
        experiment: the experiment.
        name: name of the run.
        seed: the job's seed.
        fold: the job's fold; if it is None and the experiment has folds, the first.
        title: the experiment's folder below results/; by default, the experiment's name.
    """
    store = Plan.of(experiment).store(name)
    if not store.manifest.exists():
        prepare_store(store)
        # Again, because shapes and numbers of samples may be unknown before the conversion.
        check_experiment(experiment)
    return job_task(experiment, name, seed, fold, title)


def job_task(experiment: Experiment, name: str, seed: int, fold: int | None, title: str = "") -> Task:
    """Return the task of one job, as `prepare_task` does, but leave its data set as it is.

    Args:
        experiment: the experiment.
        name: name of the run.
        seed: the job's seed.
        fold: the job's fold; if it is None and the experiment has folds, the first.
        title: the experiment's folder below results/; by default, the experiment's name.
    """
    fold = fold or 0 if experiment.folds > 1 else fold
    return Plan.of(experiment).task(JobSpec(run=name, seed=seed, fold=fold), title)


def _evaluate(task: Task) -> None:
    from nnlo_lib.report.statistics.guessing import guessing_note
    from nnlo_lib.train.evaluation.evaluate import evaluate_model

    evaluate_model(task.run, task.manifest, task.paths.model, task.paths.evaluation)
    _print_evaluation(task)
    print(f"results in {task.folder}/", file=sys.stderr)
    if note := guessing_note(load_json(task.paths.evaluation.read_text())):
        print(note, file=sys.stderr)


def _print_evaluation(task: Task) -> None:
    report = load_json(task.paths.evaluation.read_text())
    figures = "  ".join(f"{key} {report[key]:.4f}" for key in ("loss", *map(metric_column, task.run.metrics)))
    print(f"{report['split']} ({report['samples']:,} samples): {figures}", file=sys.stderr)
