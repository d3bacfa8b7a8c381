"""`nnlo plan`: what an experiment costs, before anything is submitted."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from nnlo_lib.config import Experiment
from nnlo_lib.jobs import Plan, gpus, processes
from nnlo_lib.search.words import clock
from nnlo_lib.tune.estimate import search_lines
from nnlo_lib.tune.pace import pace_of_run

HEADINGS = ("run", "jobs", "ranks", "cores", "GPUs", "at most", "core hours", "measured")


def plan(experiment: Experiment) -> str:
    """Return jobs, ranks and hours as text. At most: of one attempt each, as resources.runtime allows."""
    todo = Plan.of(experiment)
    lines = [f"{experiment.name}: results/{experiment.name}/"]
    if todo.jobs:
        rows = [_row(todo, name) for name in todo.runs]
        lines += ["", *_columns([HEADINGS, *rows])]
    if experiment.search:
        lines += ["", *search_lines(experiment, experiment.search)]
    lines += [
        "",
        "Hours at most are resources.runtime times jobs: what the scheduler may be asked for, if no job is tried again.",
    ]
    return "\n".join(lines)


def _row(todo: Plan, name: str) -> tuple[str, ...]:
    run, jobs = todo.runs[name], sum(job.run == name for job in todo.jobs)
    cores = processes(run) * run.parallel.threads_per_rank
    hours = jobs * run.resources.runtime / 60
    return (
        name, str(jobs), str(run.parallel.ranks), str(cores), str(gpus(run)), f"{hours:.4g} h",
        f"{hours * cores:.4g}", _measured(todo, name, jobs),
    )  # fmt: skip


def _measured(todo: Plan, name: str, jobs: int) -> str:
    pace = pace_of_run(Path("results", todo.experiment.name, name))
    return clock(jobs * pace * todo.runs[name].train.epochs) if pace else "-"


def _columns(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield a table, the first column to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for first, *others in rows:
        cells = (cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True))
        yield "  ".join([first.ljust(widths[0]), *cells])
