"""The result in one paragraph; only differences larger than the spread are reported as differences."""

import math
from collections.abc import Collection, Sequence

import pandas as pd
from markupsafe import Markup

from nnlo_lib.report.formatting import bold, listing, percent, plural, plus_minus, rounded
from nnlo_lib.report.sections.consensus import node_metric_ranges
from nnlo_lib.report.tables import Spread, leaders, ranking_metric, spread_by_run
from nnlo_lib.report.time_base import TimeBase

MAX_NAMED_RUNS = 3  # runs; above this number, a sentence gives their range


def headline(table: pd.DataFrame, clock: TimeBase, interruptions: str = "") -> Markup:
    """Return the paragraph: best run, runs within its spread, its node models, speeds and interruptions.

    Args:
        table: summary with one row per job.
        clock: clock of each run.
        interruptions: sentence on interrupted attempts; if empty, the restarts in `table` are counted.
    """
    sentences = [_quality(table), _nodes(table), speed_sentence(table, clock), _endings(table)]
    sentences.append(interruptions or _restarts(table))
    # Markup is safe here: only names come from the user, and `bold` escapes them.
    return Markup(" ".join(filter(None, sentences)))


def repetitions(table: pd.DataFrame) -> str:
    """Return the number of repetitions of a mean: `3 seeds` or `3 seeds × 5 folds`."""
    seeds, folds = table["seed"].nunique(), table["fold"].nunique()
    return plural(seeds, "seed") + (f" × {plural(folds, 'fold')}" if folds else "")


def sample_weight_sentence(samples: int) -> str:
    """Return a sentence on the weight of one test sample in the accuracy."""
    return f"The test split has {plural(samples, 'sample')}: one sample corresponds to {percent(1 / samples, 2)} of accuracy."


def test_split_sentence(splits: Collection[str]) -> str:
    """Return a sentence on the samples that replace a missing test split, or an empty string."""
    # Sorted, because equal inputs must give equal pages.
    others = sorted(set(splits) - {"test"})
    if not others:
        return ""
    names = {"validation": "the validation split", "held back": "the samples held back for validation"}
    return (
        f"If the data set has no test split, “test” refers to {listing([names[name] for name in others])}. "
        "Such results are optimistically biased if validation metrics were used to choose settings or epochs."
    )


def _quality(table: pd.DataFrame) -> str:
    column, highest = ranking_metric(table)
    values = _known(table, column)
    if not values:
        return f"No run has a finite test {column}, so the runs cannot be compared."
    leading = leaders(values, highest)
    best = leading[0]
    value = f"{_value(values[best], column)} over {repetitions(table[table['run'] == best])}"
    if len(values) == 1:
        return f"{bold(best)} has a mean test {column} of {value}."
    first = f"{bold(best)} has the {'highest' if highest else 'lowest'} mean test {column}: {value}."
    return f"{first} {_within_spread(values, leading, column)}{_beyond_spread(values, leading, column)}"


def _nodes(table: pd.DataFrame) -> str:
    """Return a sentence on the best run's node models, or an empty string if its nodes keep no own models."""
    column, highest = ranking_metric(table)
    found = node_metric_ranges(table, column)
    best = leaders(_known(table, column), highest)[:1]
    if not best or best[0] not in found:
        return ""
    return (
        f"Each node of {bold(best[0])} has its own model; the test result is that of the averaged model. "
        f"The validation {column} of the node models is {found[best[0]]}."
    )


def _known(table: pd.DataFrame, column: str) -> dict[str, Spread]:
    return {run: spread for run, spread in spread_by_run(table, column).items() if math.isfinite(spread.mean)}


def _within_spread(values: dict[str, Spread], leading: Sequence[str], column: str) -> str:
    """Return a sentence on the runs whose difference to the best run is within the spread, or unknown.

    Args:
        values: spread of the metric by run.
        leading: the best run, then the runs that are not worse by more than the spread.
        column: the metric.

    Returns:
        The sentence with a space after it; empty if `leading` contains only the best run.
    """
    if len(leading) == 1:
        return ""
    runs = _several(leading[1:], values, column)
    if any(values[run].count < 2 for run in leading):
        return (
            f"{runs} cannot be distinguished from it: the difference is within the spread, or the spread is "
            "unknown (single training task). "
        )
    return f"{runs} cannot be distinguished from it: the difference is within the spread. "


def _beyond_spread(values: dict[str, Spread], leading: Sequence[str], column: str) -> str:
    """Return a sentence on the runs that are worse than the best run by more than the spread.

    Args:
        values: spread of the metric by run.
        leading: the best run, then the runs that are not worse by more than the spread.
        column: the metric.

    Returns:
        The sentence; empty if no run is worse.
    """
    rest = [run for run in values if run not in leading]
    if not rest:
        return ""
    return (
        f"{_several(rest, values, column)} {'is' if len(rest) == 1 else 'are'} worse by more than the spread."
    )


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
        f"{len(ended)} of {plural(len(table), 'training task')} ended early because a stopping rule applied."
        if len(ended)
        else ""
    )


def _restarts(table: pd.DataFrame) -> str:
    count, interrupted = int(table["restarts"].sum()), int((table["restarts"] > 0).sum())
    if not count:
        return ""
    jobs = f"{interrupted} of {plural(len(table), 'training task')}"
    return f"{jobs} {'was' if interrupted == 1 else 'were'} interrupted and resumed ({plural(count, 'restart')})."


MIN_SPEED_RATIO = 1.05  # below this ratio, two speeds are reported as similar


def speed_sentence(table: pd.DataFrame, clock: TimeBase) -> str:
    """Return a sentence on the fastest run; measured and virtual speeds are not compared."""
    if clock.mixed:
        return "Training speeds are not compared: some runs have a measured clock, others a virtual clock."
    speeds = spread_by_run(table, "samples_per_second")
    ranked = sorted(speeds, key=lambda run: speeds[run].mean, reverse=True)
    fast, slow = ranked[0], ranked[-1]
    ranks = {run: plural(count, "rank") for run, count in table.groupby("run")["ranks"].first().items()}
    rate = f"{rounded(speeds[fast].mean)} samples per {f'{clock.word} second'.strip()}"
    if len(ranked) == 1:
        return f"Its training speed is {rate} with {ranks[fast]}."
    ratio = speeds[fast].mean / speeds[slow].mean
    # A single job has no spread, and its speed ratio is reported without this test.
    has_spread = speeds[fast].count > 1 < speeds[slow].count
    if ratio < MIN_SPEED_RATIO or (has_spread and not speeds[fast].beats(speeds[slow], highest=True)):
        return (
            f"The runs train at similar speeds (largest difference below {percent(MIN_SPEED_RATIO - 1, 1)} or within the "
            f"spread), at most {rate}."
        )
    factor = f"{rounded(ratio)} times the speed of the slowest run, {bold(slow)} ({ranks[slow]})"
    return f"{bold(fast)} trains fastest: {rate} with {ranks[fast]}, {factor}."
