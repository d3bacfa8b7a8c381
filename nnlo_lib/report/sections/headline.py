"""The result in one paragraph, which claims only differences larger than the spread."""

import math
from collections.abc import Collection, Sequence

import pandas as pd
from markupsafe import Markup

from nnlo_lib.report.formatting import bold, listing, percent, plural, plus_minus, rounded
from nnlo_lib.report.sections.consensus import node_metric_ranges
from nnlo_lib.report.tables import Spread, leaders, ranking_metric, spread_by_run
from nnlo_lib.report.time_base import TimeBase

MAX_NAMED_RUNS = 3  # runs; above this number a sentence gives their range


def headline(table: pd.DataFrame, clock: TimeBase, interruptions: str = "") -> Markup:
    """Return the paragraph: best run, runs equal to it within the spread, its node models, and speeds.

    Args:
        table: summary with one row per job.
        clock: clock of each run.
        interruptions: sentence on interrupted attempts; if empty, the restarts in `table` are counted.
    """
    sentences = [_quality(table), _nodes(table), speed_sentence(table, clock), _endings(table)]
    sentences.append(interruptions or _restarts(table))
    # This is safe: only names come from outside, and `bold` escapes them.
    return Markup(" ".join(filter(None, sentences)))


def repetitions(table: pd.DataFrame) -> str:
    """Return the number of repetitions of a mean: `3 seeds` or `3 seeds × 5 folds`."""
    seeds, folds = table["seed"].nunique(), table["fold"].nunique()
    return plural(seeds, "seed") + (f" × {plural(folds, 'fold')}" if folds else "")


def sample_weight_sentence(samples: int) -> str:
    """Return a sentence on the weight of one test sample in the accuracy."""
    return f"The test split has {plural(samples, 'sample')}: one sample is {percent(1 / samples, 2)} of accuracy."


def test_split_sentence(splits: Collection[str]) -> str:
    """Return a sentence on the samples that replace a missing test split, or an empty string."""
    others = sorted(set(splits) - {"test"})
    if not others:
        return ""
    where = {"validation": "the validation split", "held back": "the samples held back for validation"}
    return (
        f"Where the data set has no test split, “test” means here: {listing([where[name] for name in others])}. "
        f"Choices made by validation figures make such numbers look better than they are."
    )


def _quality(table: pd.DataFrame) -> str:
    column, highest = ranking_metric(table)
    values = _known(table, column)
    if not values:
        return "No run has a test result that can be compared."
    level = leaders(values, highest)
    best = level[0]
    value = f"{_value(values[best], column)} over {repetitions(table[table['run'] == best])}"
    if len(values) == 1:
        return f"{bold(best)} reaches a test {column} of {value}."
    claim = f"{bold(best)} has the {'highest' if highest else 'lowest'} test {column}: {value}."
    return f"{claim} {_level(values, level, column)}{_behind(values, level, column)}"


def _nodes(table: pd.DataFrame) -> str:
    """Return a sentence on the best run's node models, or an empty string if its nodes keep no own models."""
    column, highest = ranking_metric(table)
    found = node_metric_ranges(table, column)
    best = leaders(_known(table, column), highest)[:1]
    if not best or best[0] not in found:
        return ""
    return (
        f"Tested is the mean of the models that the nodes of {bold(best[0])} keep; "
        f"their own validation {column} is {found[best[0]]}."
    )


def _known(table: pd.DataFrame, column: str) -> dict[str, Spread]:
    return {run: spread for run, spread in spread_by_run(table, column).items() if math.isfinite(spread.mean)}


def _level(values: dict[str, Spread], level: Sequence[str], column: str) -> str:
    """Return a sentence on the runs that are equal to the best within the spread."""
    if len(level) == 1:
        return ""
    who, neither = _several(level[1:], values, column), "neither" if len(values) == 2 else "none of them"
    if any(values[run].count < 2 for run in level):
        return (
            f"{who} cannot be told from it: a single training has no spread, so {neither} is called better. "
        )
    return f"{who} cannot be told from it within the spread, so {neither} is called better. "


def _behind(values: dict[str, Spread], level: Sequence[str], column: str) -> str:
    rest = [run for run in values if run not in level]
    if not rest:
        return ""
    return f"{_several(rest, values, column)} {'is' if len(rest) == 1 else 'are'} behind by more than the spread."


def _several(runs: Sequence[str], values: dict[str, Spread], column: str) -> str:
    if len(runs) <= MAX_NAMED_RUNS:
        return listing([f"{bold(run)} ({_value(values[run], column)})" for run in runs])
    ranked = sorted((values[run] for run in runs), key=lambda spread: spread.mean)
    return f"{len(runs)} runs, from {_value(ranked[0], column)} to {_value(ranked[-1], column)},"


def _value(spread: Spread, column: str) -> str:
    return plus_minus(spread, 100, "%") if column.endswith("accuracy") else plus_minus(spread)


def _endings(table: pd.DataFrame) -> str:
    """Return a sentence on the number of jobs that stopped early because of a measured value."""
    ended = table["ended_early"].dropna()
    return (
        f"{len(ended)} of {plural(len(table), 'training')} ended early by what was measured."
        if len(ended)
        else ""
    )


def _restarts(table: pd.DataFrame) -> str:
    count, interrupted = int(table["restarts"].sum()), int((table["restarts"] > 0).sum())
    if not count:
        return ""
    jobs = f"{interrupted} of {plural(len(table), 'training')}"
    return f"{jobs} {'was' if interrupted == 1 else 'were'} interrupted and resumed ({plural(count, 'restart')})."


MIN_SPEED_RATIO = 1.05  # below this ratio, two speeds are called equal


def speed_sentence(table: pd.DataFrame, clock: TimeBase) -> str:
    """Return a sentence on the fastest run; measured and virtual speeds are not compared."""
    if clock.mixed:
        return "Speeds are not compared: some are measured, others virtual."
    speeds = spread_by_run(table, "samples_per_second")
    ranked = sorted(speeds, key=lambda run: speeds[run].mean, reverse=True)
    fast, slow = ranked[0], ranked[-1]
    ranks = {run: plural(count, "rank") for run, count in table.groupby("run")["ranks"].first().items()}
    rate = f"{rounded(speeds[fast].mean)} samples per {f'{clock.word} second'.strip()}"
    if len(ranked) == 1:
        return f"It trains on {rate} with {ranks[fast]}."
    ratio = speeds[fast].mean / speeds[slow].mean
    repeated = speeds[fast].count > 1 < speeds[slow].count
    if ratio < MIN_SPEED_RATIO or (repeated and not speeds[fast].beats(speeds[slow], highest=True)):
        return f"All train equally fast, at about {rate}."
    times = f"{rounded(ratio)} times {bold(slow)} on {ranks[slow]}"
    return f"{bold(fast)} trains fastest, on {rate} with {ranks[fast]}: {times}."
