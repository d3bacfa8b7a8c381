"""What a search costs."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from nnlo_lib.config import Experiment, Run, Search
from nnlo_lib.errors import UserError
from nnlo_lib.jobs import gpus, processes
from nnlo_lib.search.record import Record, read_record
from nnlo_lib.search.space import Space
from nnlo_lib.search.supply import supply
from nnlo_lib.search.words import clock
from nnlo_lib.tune.config_file import folder_of
from nnlo_lib.tune.expected import Expected, expected
from nnlo_lib.tune.pace import pace_of_runs, pace_of_trials
from nnlo_lib.tune.trial_run import trial_run

DRAWN = 64  # points, to see what trials ask for


def search_lines(experiment: Experiment, search: Search) -> Iterator[str]:
    """Yield lines: trials, rungs, jobs, hours at most and measured, budget, and what follows."""
    points = supply(search)
    few = points is not None and points < search.trials
    search = search.model_copy(update={"trials": points}) if few else search
    likely, most = expected(experiment, search), expected(experiment, search, 1)
    runs = _runs(experiment, search)
    rows = [
        ("search", f"{_trials(search, few)} by {search.method.name}, {search.parallel} trainings at a time"),
        ("folds", _folds(search)),
        ("epochs", _epochs(experiment, search, likely)),
        ("jobs", _jobs(runs, likely, most)),
        ("at most", _hours(runs, search, most)),
        ("measured", _measured(experiment, search, likely)),
        ("budget", _budget(search)),
        ("then", _then(experiment, runs)),
    ]
    yield from (f"{name:<9} {text}" for name, text in rows if text)


def _trials(search: Search, few: bool) -> str:
    """Say how many trials; few: the space has no more."""
    return f"{search.trials} trials{', all that the space has,' if few else ''}"


def _runs(experiment: Experiment, search: Search) -> list[Run]:
    """Return trainings as the search may ask for them."""
    space, generator = Space(search.space), np.random.default_rng(0)
    return [trial_run(experiment, space.sample(generator)) for _ in range(DRAWN)]


def _folds(search: Search) -> str:
    folds = search.folds
    if folds.k == 1:
        return ""
    fewer = ", fewer of those that a test finds worse" if folds.prune else ""
    return f"{folds.k} of each trial, {'one after the other' if folds.in_turn else 'all at a time'}{fewer}"


def _epochs(experiment: Experiment, search: Search, likely: Expected) -> str:
    full = search.trials * search.folds.k * experiment.train.epochs
    if search.fidelity.name == "full":
        return f"{full:,}: {experiment.train.epochs} of each training"
    if search.fidelity.name == "median":
        return f"{full:,} at most; trials worse than the median of others end before"
    rungs = ", ".join(f"{count} to {epochs}" for epochs, count in likely.trials.items())
    return (
        f"about {likely.epochs:,}, where full training takes {full:,}; {search.fidelity.name}: trials {rungs}"
    )


def _jobs(runs: list[Run], likely: Expected, most: Expected) -> str:
    about = f"about {likely.jobs:,}, {most.jobs:,} at most" if likely.jobs < most.jobs else f"{most.jobs:,}"
    most_gpus = max(map(gpus, runs))
    tail = f", {most_gpus} GPUs" if most_gpus else ""
    return f"{about}; each {_span([run.parallel.ranks for run in runs])} ranks, {_span(_cores(runs))} cores{tail}"


def _hours(runs: list[Run], search: Search, most: Expected) -> str:
    hours = most.jobs * max(run.resources.runtime for run in runs) / 60
    side = hours / min(search.parallel, most.jobs)
    return f"{hours:,.4g} h of jobs, {side:,.4g} h at {search.parallel} a time, {hours * max(_cores(runs)):,.4g} core hours"


def _measured(experiment: Experiment, search: Search, likely: Expected) -> str:
    record = _record(experiment)
    pace = pace_of_trials(record) if record else None
    source = f"by the {len(record.known.trials)} trials so far" if record and pace else "by the runs so far"
    pace = pace or pace_of_runs(Path("results", experiment.name))
    if pace is None:
        return ""
    seconds = likely.epochs * pace
    side = clock(seconds / search.parallel)
    return f"{clock(seconds)} of jobs, {side} at {search.parallel} a time, {source}: {pace:.3g} s an epoch"


def _then(experiment: Experiment, runs: list[Run]) -> str:
    jobs = len(experiment.seeds)
    hours = jobs * max(run.resources.runtime for run in runs) / 60
    return f"the best is trained on all data, once for each of {jobs} seeds: {hours:,.4g} h at most"


def _record(experiment: Experiment) -> Record | None:
    try:
        return read_record(folder_of(experiment))
    except UserError:
        return None


def _budget(search: Search) -> str:
    limits = [f"{limit:g} {name.replace('_', ' ')}" for name, limit in search.budget if limit is not None]
    if search.objective.target is not None:
        limits.append(f"a trial of {search.objective.metric} {search.objective.target:g}")
    return f"no new trial after {' or '.join(limits)}" if limits else ""


def _cores(runs: list[Run]) -> list[int]:
    return [processes(run) * run.parallel.threads_per_rank for run in runs]


def _span(values: list[int]) -> str:
    return str(max(values)) if min(values) == max(values) else f"{min(values)} to {max(values)}"
