"""Estimate of a search's cost: number of trials, jobs and epochs; hours by time limits and by measured pace."""

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from statistics import fmean
from typing import NamedTuple

import numpy as np

from nnlo_lib.config import Experiment, Run
from nnlo_lib.config.experiment import RunResources
from nnlo_lib.config.search import SearchConfig
from nnlo_lib.core.errors import UserError
from nnlo_lib.core.text_format import duration_text, plural, table_lines
from nnlo_lib.search.pruners import build_pruner
from nnlo_lib.search.space.space import SearchSpace, count_distinct_points, count_trials
from nnlo_lib.search.study.snapshot import StudySnapshot
from nnlo_lib.search.study.storage import load_study, search_folder, trial_run
from nnlo_lib.search.study.trial import FoldTask, Result

SAMPLED_RUNS = 64  # random points from which the ranges of ranks, cores and time limits are estimated


class Expected(NamedTuple):
    """Expected amount of training: trials that reach each rung, by its number of epochs; jobs and epochs of all folds."""

    trials: dict[int, int]
    jobs: int
    epochs: int


def expected(max_epochs: int, search: SearchConfig, factor: int | None = None) -> Expected:
    """Return the number of trials, jobs and epochs that a search is expected to train, with `max_epochs` of a complete training.

    Median stopping and the pruning of folds cannot be predicted: all epochs and folds are counted. One in `factor` trials of
    a rung is promoted; 1: all; None: the factor of `search.fidelity`.
    """
    pruner = build_pruner(search.fidelity)
    divisor = getattr(search.fidelity, "factor", 1) if factor is None else factor
    trials, total = Counter[int](), 0
    # Promotion is decided within the trials of a bracket, which have the same rungs.
    ladders = Counter(pruner.rungs(trial, max_epochs) for trial in range(count_trials(search)))
    for rungs, count in ladders.items():
        for height, (below, rung) in enumerate(pairwise((0, *rungs))):
            promoted = count // divisor**height
            trials[rung] += promoted
            total += promoted * (rung - below)
    folds = search.folds.k
    kept = {rung: count for rung, count in sorted(trials.items()) if count}
    return Expected(kept, folds * trials.total(), folds * total)


def time_left(known: StudySnapshot, before: StudySnapshot, seconds: float) -> float:
    """Return the estimated seconds to the end of a search, after `seconds` in which `before` became `known`; 0 without an estimate."""
    done, done_before = (sum(facts.trained_epochs for facts in each.facts) for each in (known, before))
    if "expected" not in known.memo:
        known.memo["expected"] = expected(known.epochs, known.search).epochs
    rest = known.memo["expected"] - done
    return max(0.0, seconds * rest / (done - done_before)) if done > done_before else 0.0


def local_parallel(experiment: Experiment) -> int:
    """Return the number of trainings in parallel on this machine: unless it is written, as many as have cores of their own."""
    search = experiment.search
    assert search is not None, "only an experiment with a search is searched"
    # With a fixed order, the decisions depend on the number.
    if "parallel" in search.model_fields_set or search.order == "fixed":
        return search.parallel
    return max(1, min(search.parallel, len(os.sched_getaffinity(0)) // RunResources(experiment).cores))


class Pace(NamedTuple):
    """Measured pace of trainings: seconds from the start of a job to its first step, and per epoch."""

    startup_s: float
    epoch_s: float

    def seconds(self, jobs: int, epochs: int) -> float:
        """Return the estimated seconds of some jobs that train `epochs` epochs together."""
        return jobs * self.startup_s + epochs * self.epoch_s

    def __str__(self) -> str:
        start = f" and {self.startup_s:.3g} s per start" if self.startup_s else ""
        return f"{self.epoch_s:.3g} s per epoch{start}"


def search_pace(known: StudySnapshot, virtual: bool) -> Pace | None:
    """Return the mean pace of the finished fold tasks of a search; None without any.

    `virtual`: the seconds of the history are of a simulated clock, so that they measure nothing.
    """
    done = [result for result in known.results.values() if result.status == "finished"]
    if not done:
        return None
    epochs = [result.fold_task.epochs - _task_below(known, result.fold_task).epochs for result in done]
    in_epochs = [0.0 if virtual else trained_seconds(known, result) for result in done]
    rest = [max(0.0, result.seconds - seconds) for result, seconds in zip(done, in_epochs, strict=True)]
    startup, more = _fixed_and_by_epoch(rest, epochs, all_by_epoch=virtual)
    return Pace(startup, sum(in_epochs) / sum(epochs) + more)


def trained_seconds(known: StudySnapshot, result: Result) -> float:
    """Return the seconds of training steps of a fold task, as its history records them."""
    below = known.results.get(_task_below(known, result.fold_task))
    # `seconds` of the history continue over rungs: a fold task resumes the training of the rung below.
    last = [each.rows[-1]["seconds"] if each and each.rows else 0.0 for each in (result, below)]
    return max(0.0, last[0] - last[1])


def _task_below(known: StudySnapshot, task: FoldTask) -> FoldTask:
    """Return the fold task that a fold task continues: of the next lower rung, or of a parent; 0 epochs without one."""
    below = max((rung for rung in known.rungs(task.trial) if rung < task.epochs), default=0)
    parent = known.trials[task.trial].parent
    return (
        FoldTask(parent.trial, task.fold, parent.epochs)
        if parent and not below
        else replace(task, epochs=below)
    )


def _fixed_and_by_epoch(
    rest: Sequence[float], epochs: Sequence[int], all_by_epoch: bool
) -> tuple[float, float]:
    """Return the fixed seconds of a job and the seconds by epoch, such as of validations, by least squares.

    `rest`: seconds of each fold task outside of training steps. `all_by_epoch`: seconds count by epoch if all fold tasks have
    the same number of epochs.
    """
    if len(set(epochs)) == 1:
        return (0.0, sum(rest) / sum(epochs)) if all_by_epoch else (fmean(rest), 0.0)
    slope, fixed = np.polyfit(epochs, rest, 1)
    # Neither part can be negative; the other one then explains all.
    if slope < 0:
        return fmean(rest), 0.0
    return (float(fixed), float(slope)) if fixed >= 0 else (0.0, sum(rest) / sum(epochs))


def search_lines(experiment: Experiment, search: SearchConfig, run_pace: Pace | None) -> Iterator[str]:
    """Yield the lines of the estimate: trials, folds, epochs, jobs, hours, budget, retraining.

    `run_pace`: pace of the experiment's finished runs; None if no run has finished.
    """
    # The workflow runs search.parallel jobs, `nnlo search` here perhaps fewer.
    parallel = sorted({search.parallel, local_parallel(experiment)}, reverse=True)
    search = search.model_copy(update={"trials": count_trials(search)})
    epochs = experiment.train.epochs
    likely, most = expected(epochs, search), expected(epochs, search, 1)
    # A fixed seed, so that the estimate of an experiment is always the same.
    space, generator = SearchSpace(search.space), np.random.default_rng(0)
    runs = [trial_run(experiment, space.sample(generator)) for _ in range(SAMPLED_RUNS)]
    cores = [RunResources(run).cores for run in runs]
    longest_min = max(RunResources(run).runtime_min for run in runs)
    hours, seeds = most.jobs * longest_min / 60, len(experiment.seeds)
    wall_hours = [f"{hours / min(each, most.jobs):,.4g} h with {each} in parallel" for each in parallel]
    here = f", {parallel[-1]} by `nnlo search` on this machine" if len(parallel) > 1 else ""
    here += f", {search.tasks_per_job} per job of the DAG" if search.tasks_per_job != 1 else ""
    rows = {
        "search": f"{_trials(search)} by {search.method.name}, {search.parallel} fold tasks in parallel{here}",
        "folds": _folds(search),
        "epochs": _epochs(experiment, search, likely),
        "jobs": _jobs(runs, cores, likely, most),
        "at most": f"{hours:,.4g} job hours, {', '.join(wall_hours)}, {hours * max(cores):,.4g} core hours",
        "measured": _measured(experiment, parallel, likely, run_pace),
        "budget": _budget(search),
        "then": f"the best trial is retrained once for each of {seeds} seeds: at most {seeds * longest_min / 60:,.4g} h",
    }
    yield from table_lines([(name, text) for name, text in rows.items() if text], left=(0, 1))


def _trials(search: SearchConfig) -> str:
    """Return the number of trials as text, and the share of all points that they are, if that is known."""
    points = count_distinct_points(search)
    if points is not None and points <= count_trials(search):
        return f"{plural(points, 'trial')} (all points of the space)"
    unfinished = f" of the {points:,} points of the grid" if search.method.name == "grid" else ""
    return f"{plural(count_trials(search), 'trial')}{unfinished}"


def _folds(search: SearchConfig) -> str:
    folds = search.folds
    if folds.k == 1:
        return ""
    pruned = ", fewer for trials that the paired test finds worse" if folds.prune else ""
    return f"{folds.k} per trial, {'one after another' if folds.in_turn else 'in parallel'}{pruned}"


def _epochs(experiment: Experiment, search: SearchConfig, likely: Expected) -> str:
    full = count_trials(search) * search.folds.k * experiment.train.epochs
    if search.fidelity.name == "full":
        return f"{full:,}: {experiment.train.epochs} per fold task"
    if search.fidelity.name == "median":
        return f"at most {full:,}; trials worse than the median of the others stop earlier"
    rungs = ", ".join(f"{count} to epoch {epochs}" for epochs, count in likely.trials.items())
    return f"about {likely.epochs:,} (full training: {full:,}); {search.fidelity.name}: trials {rungs}"


def _jobs(runs: list[Run], cores: list[int], likely: Expected, most: Expected) -> str:
    about = f"about {likely.jobs:,}, at most {most.jobs:,}" if likely.jobs < most.jobs else f"{most.jobs:,}"
    most_gpus = max(RunResources(run).gpus for run in runs)
    tail = f", {plural(most_gpus, 'GPU')}" if most_gpus else ""
    return f"{about}; each {_span([run.parallel.ranks for run in runs])} ranks, {_span(cores)} cores{tail}"


def _measured(
    experiment: Experiment, parallel: Sequence[int], likely: Expected, run_pace: Pace | None
) -> str:
    try:
        known: StudySnapshot | None = load_study(search_folder(experiment)).snapshot
    except UserError:
        known = None
    trial_pace = search_pace(known, experiment.parallel.transport == "simulated") if known else None
    if (pace := trial_pace or run_pace) is None:
        return ""
    source = f"the {len(known.trials)} trials so far" if known and trial_pace else "the runs so far"
    seconds = pace.seconds(likely.jobs, likely.epochs)
    wall = ", ".join(f"{duration_text(seconds / each)} with {each} in parallel" for each in parallel)
    return f"{duration_text(seconds)} of jobs, {wall}, from {source}: {pace}"


def _budget(search: SearchConfig) -> str:
    limits = [f"{limit:g} {name.replace('_', ' ')}" for name, limit in search.budget if limit is not None]
    if search.objective.target is not None:
        limits.append(f"a trial with {search.objective.metric} {search.objective.target:g}")
    return f"no new fold task after {' or '.join(limits)}" if limits else ""


def _span(values: list[int]) -> str:
    return str(max(values)) if min(values) == max(values) else f"{min(values)} to {max(values)}"
