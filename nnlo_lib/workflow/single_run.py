"""Trainings without Snakemake: one job of an experiment (fetch, convert, train, evaluate), or all runs in virtual time."""

from collections.abc import Sequence

from nnlo_lib.config import Experiment, JobSpec, merge_settings
from nnlo_lib.config.metrics import metric_column, metric_direction
from nnlo_lib.config.paths import ExperimentPaths
from nnlo_lib.config.stopping import better_direction
from nnlo_lib.core.atomic_file import load_json, write_settings
from nnlo_lib.core.errors import UserError
from nnlo_lib.core.file_access import refuse_unwritable
from nnlo_lib.core.logging_setup import write_stderr
from nnlo_lib.core.text_format import plural, size_text, table_lines
from nnlo_lib.launch.attempt import LaunchOptions, complete_task, finished_note
from nnlo_lib.preflight.preflight import check_experiment
from nnlo_lib.state.attempt_outcome import AttemptOutcome
from nnlo_lib.state.finished_run import FinishedRun
from nnlo_lib.train.freshness import is_evaluated, status
from nnlo_lib.train.task import Task, prepare_store
from nnlo_lib.workflow.plan import Plan

HistoryRow = dict[str, str]
TABLE_HEADINGS = (
    "run", "ranks", "final", "time to target", "bytes to target", "time", "bytes", "messages", "wait",
)  # fmt: skip


def run_single_training(experiment: Experiment, name: str, seed: int, fold: int | None, launcher: str) -> int:
    """Train and evaluate as `train_and_evaluate` does; return the exit status."""
    _, outcome = train_and_evaluate(experiment, name, seed, fold, launcher)
    return outcome.exit_status


def train_and_evaluate(
    experiment: Experiment, name: str, seed: int, fold: int | None, launcher: str
) -> tuple[Task, AttemptOutcome]:
    """Fetch and convert missing data, train, evaluate if the training finished; return task and outcome.

    Files have the same paths as in the workflow, so that either can resume the work of the other. If the training is
    finished and evaluated already, nothing is written.
    """
    task = job_task(experiment, name, seed, fold)
    # Before the conversion of new data, which may take hours.
    if status(task).refuse_longer().kind == "finished" and is_evaluated(task):
        write_stderr(f"{finished_note(task)}\n")
        _print_evaluation(task)
        _print_guessing(task)
        return task, AttemptOutcome("finished")
    refuse_unwritable(ExperimentPaths(experiment.name).run_folder(name))
    task = prepare_task(experiment, name, seed, fold)
    write_settings(
        ExperimentPaths(experiment.name).run_config(name), Plan.of(experiment).resolved_config(name)
    )
    outcome = complete_task(task, LaunchOptions(launcher))
    if outcome.exit_status == 0:
        _print_evaluation(task)
        write_stderr(f"results in {task.folder}/\n")
        _print_guessing(task)
    return task, outcome


def prepare_task(experiment: Experiment, name: str, seed: int, fold: int | None, title: str = "") -> Task:
    """Return the task of one job, as `job_task` does, after fetching and converting its data set."""
    store = Plan.of(experiment).store(name)
    if not store.manifest.exists():
        prepare_store(store)
        # Again, because shapes and numbers of samples may be unknown before the conversion.
        check_experiment(experiment)
    return job_task(experiment, name, seed, fold, title)


def job_task(experiment: Experiment, name: str, seed: int, fold: int | None, title: str = "") -> Task:
    """Return the task of one job of the run `name`; its data set need not be converted.

    Args:
        fold: the job's fold; if it is None and the experiment has folds, the first.
        title: the experiment's folder below results/; by default, the experiment's name.
    """
    fold = fold or 0 if experiment.folds > 1 else fold
    return Plan.of(experiment).task(JobSpec(run=name, seed=seed, fold=fold), title)


def _print_evaluation(task: Task) -> None:
    report = load_json(task.paths.evaluation.read_text())
    figures = "  ".join(
        f"{key} {'undefined' if report[key] is None else f'{report[key]:.4f}'}"
        for key in ("loss", *map(metric_column, task.run.metrics))
    )
    write_stderr(f"{report['split']} ({plural(report['samples'], 'sample')}): {figures}\n")


def _print_guessing(task: Task) -> None:
    # Here, because a training that fails needs no pandas.
    from nnlo_lib.report.statistics.run_comparison import guessing_sentence

    if found := guessing_sentence([FinishedRun(task.folder)]):
        write_stderr(f"warning: {found}\n")


def simulated(experiment: Experiment) -> Experiment:
    """Return the experiment with simulated transport; its results are in results/<experiment>-simulated."""
    settings = merge_settings(
        experiment.model_dump(exclude_unset=True), {"parallel": {"transport": "simulated"}}
    )
    return Experiment.model_validate(settings | {"name": f"{experiment.name}-simulated"})


def simulate_runs(experiment: Experiment, names: Sequence[str], seed: int, target: float | None) -> int:
    """Train the runs `names`; print the virtual time and bytes until a validation metric reaches `target`.

    The metric is the first of `metrics` whose better direction is known, or the loss. Its target is by default the best
    value that all runs reach. With folds, only the first fold is trained.

    Return the exit status of the first training that fails, otherwise 0. Raises UserError if a run does not measure the
    metric.
    """
    metric = comparing_metric(experiment.sample_metrics)
    _refuse_unmeasured(experiment, names, metric)
    finished = []
    for name in names:
        task, outcome = train_and_evaluate(experiment, name, seed, None, "mpiexec")
        if outcome.exit_status:
            return outcome.exit_status
        finished.append(FinishedRun(task.folder))
    # By default, the target is the worst of the runs' best values, which every run reaches.
    bests = [_best(metric, [float(row[metric]) for row in run.history_text]) for run in finished]
    goal = _best(metric, bests, worst=True) if target is None else target
    print(f"\nvirtual time until {metric} reaches {goal:.4f}; bytes and messages are sums over all ranks\n")
    rows = [_table_row(run, metric, goal) for run in finished]
    print(*table_lines([TABLE_HEADINGS, *rows]), sep="\n")
    return 0


def comparing_metric(metrics: Sequence[str]) -> str:
    """Return the column of the first metric whose better direction is known, or of the loss."""
    columns = [f"val_{metric_column(metric)}" for metric in metrics]
    return next(filter(metric_direction, columns), "val_loss")


def _refuse_unmeasured(experiment: Experiment, names: Sequence[str], metric: str) -> None:
    """Raise UserError if a run does not measure the metric, a column of the history such as `val_accuracy`."""
    for name in names:
        run = experiment.variants[name]
        if run.data.validation == 0 and experiment.folds == 1:
            raise UserError(
                f"run {name}: data.validation is 0, so {metric} is not measured; set it, such as to 0.1"
            )
        if metric.removeprefix("val_") not in run.measured:
            raise UserError(
                f"run {name}: {metric}, the metric that compares the runs, is not measured; add it to `metrics`"
            )


def _table_row(run: FinishedRun, metric: str, target: float) -> tuple[str, ...]:
    summary, last, reached = run.summary, run.history_text[-1], _first_row_reaching(run, metric, target)
    seconds, messages = summary["seconds"], summary["messages_sent"]
    return (
        run.run,
        str(summary["ranks"]),
        f"{float(last[metric]):.4f}",
        f"{float(reached['seconds']):.2f} s" if reached else "never",
        size_text(float(reached["bytes"])) if reached else "-",
        f"{float(last['seconds']):.2f} s",
        size_text(float(last["bytes"])),
        f"{sum(messages.values()):,}",
        f"{seconds['wait'] / seconds['total']:.0%}",
    )


def _first_row_reaching(run: FinishedRun, metric: str, target: float) -> HistoryRow | None:
    """Return the first row of the history in which the metric reaches the target; None if no row does."""
    values = [(row, float(row[metric])) for row in run.history_text]
    # The better of both equals the value if it has reached the target in the metric's direction.
    return next((row for row, value in values if _best(metric, [value, target]) == value), None)


def _best(metric: str, values: Sequence[float], worst: bool = False) -> float:
    """Return the best or the worst of the values, at least one, in the better direction of the metric."""
    return max(values) if (better_direction(metric) == "larger") != worst else min(values)
