"""Tables in the terminal: jobs, ranks, cores and hours of an experiment before its jobs are submitted; stores below data/."""

from contextlib import suppress
from pathlib import Path

from nnlo_lib.config import Experiment
from nnlo_lib.config.experiment import RunResources
from nnlo_lib.config.paths import RESULTS_FOLDER, ExperimentPaths, RunPaths
from nnlo_lib.config.search import SearchConfig
from nnlo_lib.core.atomic_file import load_json
from nnlo_lib.core.errors import USER_CODE_ERRORS, UserError
from nnlo_lib.core.text_format import duration_text, plural, size_text, table_lines
from nnlo_lib.data.describe import list_data_folders
from nnlo_lib.search.cost_estimate import Pace, expected, search_lines
from nnlo_lib.search.space.space import count_trials
from nnlo_lib.state.finished_run import FinishedRun, finished_runs
from nnlo_lib.state.resource_use import ResourceUse
from nnlo_lib.workflow.plan import Plan

HEADINGS = ("run", "jobs", "ranks", "cores", "GPUs", "at most", "core hours", "measured")
PARAMETER_BYTES, CHECKPOINT_MODELS = 4, 3  # a checkpoint has the weights and at most two moments of each
FILES_OF_FOLD = 24  # of a fold that is trained to the end, without files of `observe`
STORE_HEADINGS = ("folder", "samples", "size", "made", "used by")


def cost_table(experiment: Experiment) -> str:
    """Return a table of jobs, ranks, cores and hours as text.

    The column "at most" assumes one attempt per job that uses all of resources.runtime.
    """
    plan = Plan.of(experiment)
    lines = [f"{experiment.name}: results/{experiment.name}/"]
    if plan.jobs:
        rows = [_row(plan, name) for name in plan.runs]
        lines += ["", *table_lines([HEADINGS, *rows])]
        for name, run in plan.runs.items():
            finished = list(finished_runs(ExperimentPaths(experiment.name).run_folder(name)))
            if finished and (use := ResourceUse.of(finished, run)):
                lines.append(f"{name}: {use.sentence}")
    if experiment.search:
        # Of the finished runs, also of the search's best run.
        paces = filter(None, map(_pace, ExperimentPaths(experiment.name).run_folders()))
        slowest = max(paces, key=lambda pace: pace.epoch_s, default=None)
        lines += ["", *search_lines(experiment, experiment.search, slowest)]
        lines.append(_disk_line(experiment, experiment.search))
        summaries = ExperimentPaths(experiment.name).search.trials.glob(f"*/fold-*/{RunPaths.summary.name}")
        if use := ResourceUse.of([FinishedRun(path.parent) for path in summaries]):
            lines.append(f"trials: {use.sentence}")
    lines += [
        "",
        "`at most` is resources.runtime times the number of jobs: the hours requested from the scheduler if no job is retried.",
    ]
    return "\n".join(lines)


def _disk_line(experiment: Experiment, search: SearchConfig) -> str:
    """Return the files of a search, and their size if that of the experiment's own model is known, as text."""
    folds, epochs = search.folds.k * count_trials(search), experiment.train.epochs
    trained = search.folds.k * expected(epochs, search).trials.get(epochs, 0)
    total, each = "", "model + checkpoint"
    with suppress(UserError, *USER_CODE_ERRORS):
        # Imported here, because it imports torch.
        from nnlo_lib.preflight.data_check import expected_manifest
        from nnlo_lib.train.replica.model_build import count_parameters

        if manifest := expected_manifest(experiment):
            model = PARAMETER_BYTES * count_parameters(experiment, manifest, experiment.seeds[0])
            saved = CHECKPOINT_MODELS * model
            # Ended folds that are not trained to the end have a checkpoint, and running ones some.
            kept = folds - trained + search.parallel * (experiment.checkpoint.keep + 1)
            total = f"about {size_text(trained * model)} at the end, up to {size_text(trained * model + kept * saved)} before; "
            each = f"model of {size_text(model)} + checkpoint of up to {size_text(saved)}"
    return f"disk: {total}about {folds * FILES_OF_FOLD:,} files: {plural(folds, 'fold')} x ({each})"


def _row(plan: Plan, name: str) -> tuple[str, ...]:
    run, jobs = plan.runs[name], sum(job.run == name for job in plan.jobs)
    resources = RunResources(run)
    hours = jobs * resources.runtime_min / 60
    pace = _pace(ExperimentPaths(plan.experiment.name).run_folder(name))
    measured = duration_text(pace.seconds(jobs, jobs * run.train.epochs)) if pace else "-"
    return (
        name, str(jobs), str(run.parallel.ranks), str(resources.cores), str(resources.gpus), f"{hours:.4g} h",
        f"{hours * resources.cores:.4g}", measured,
    )  # fmt: skip


def _pace(folder: Path) -> Pace | None:
    """Return the mean pace over a run's finished tasks, in seconds of the wall clock; None without measured seconds."""
    done = [(run, times) for run in finished_runs(folder) if run.epochs and (times := _startup_and_rest(run))]
    epochs = sum(run.epochs for run, _ in done)
    if not epochs:
        return None
    startup, rest = (sum(each) for each in zip(*(times for _, times in done), strict=True))
    return Pace(startup / len(done), rest / epochs)


def _startup_and_rest(run: FinishedRun) -> tuple[float, float] | None:
    """Return the seconds of one start and those after start-up; None if the wall time is not recorded."""
    seconds, attempts = run.summary["seconds"], run.attempt_statistics
    if run.transport == "simulated":
        # The seconds of the summary are virtual; only the launcher has measured wall time.
        return (0.0, attempts.total_seconds) if attempts else None
    startup, starts = seconds.get("startup", 0.0), len(attempts.attempts) if attempts else 1 + run.restarts
    return startup / starts, seconds["total"] - startup


def print_stores(experiment: Experiment | None, file: str | None) -> None:
    """Print the stores and the fetched files below data/, with the trainings that use them and the experiment's file."""
    users: dict[str, list[str]] = {}
    for store in Plan.of(experiment).stores.values() if experiment else ():
        for folder in (store.folder, store.raw):
            users.setdefault(str(folder), []).append(str(file))
    for path in sorted(RESULTS_FOLDER.rglob(RunPaths.summary.name)):
        with suppress(OSError, ValueError, LookupError, TypeError):  # not a summary of a training
            manifest = Path(load_json(path.read_text())["data"]["manifest"])
            users.setdefault(str(manifest.parent), []).append(str(path.parent))
    rows = [
        (
            str(folder),
            contents,
            size_text(size),
            f"{changed:%Y-%m-%d %H:%M}",
            " and ".join([used[0], *([f"{len(used) - 1} more"] if used[1:] else [])]),
        )
        for folder, contents, size, changed in list_data_folders()
        for used in [users.get(str(folder), ["-"])]
    ]
    print(*table_lines([STORE_HEADINGS, *rows], left=range(len(STORE_HEADINGS))), sep="\n")
