"""What came out, in a paragraph that claims no more than the numbers do."""

import math
from collections.abc import Collection, Sequence

import pandas as pd
from markupsafe import Markup, escape

from nnlo_lib.report.tables import Spread, leaders, spreads
from nnlo_lib.report.words import listing, percent, plural, plus_minus, rounded

FEW = 3  # runs; more are not named one by one
NEAR = 1.05  # ratio of speeds that is not worth a sentence


def headline(table: pd.DataFrame) -> Markup:
    """Name the best run, what cannot be told from it, and how the speeds compare."""
    sentences = [_quality(table), _speed(table), _restarts(table)]
    return Markup(" ".join(filter(None, sentences)))  # only names come from outside, and _run escapes them


def target(table: pd.DataFrame) -> tuple[str, bool]:
    """Return the column that runs are ranked by, and whether the highest is best."""
    return ("accuracy", True) if table["accuracy"].notna().any() else ("loss", False)


def repetitions(table: pd.DataFrame) -> str:
    """Say over what a mean is taken: 3 seeds, or 3 seeds × 5 folds."""
    seeds, folds = table["seed"].nunique(), table["fold"].nunique()
    return plural(seeds, "seed") + (f" × {plural(folds, 'fold')}" if folds else "")


def weight(samples: int) -> str:
    """Say how much one test sample counts."""
    return f"The test split has {plural(samples, 'sample')}: one sample is {percent(1 / samples, 2)} of accuracy."


def measured_on(splits: Collection[str]) -> str:
    """Say what stands in for test samples where a data set has none."""
    others = sorted(set(splits) - {"test"})
    if not others:
        return ""
    where = {"validation": "the validation split", "held back": "the samples held back for validation"}
    return (
        f"Where the data set has no test split, “test” means here: {listing([where[name] for name in others])}. "
        f"Choices made by validation figures make such numbers look better than they are."
    )


def _quality(table: pd.DataFrame) -> str:
    column, highest = target(table)
    values = {run: spread for run, spread in spreads(table, column).items() if math.isfinite(spread.mean)}
    if not values:
        return "No run has a test result that can be compared."
    level = leaders(values, highest)
    best = level[0]
    value = f"{_value(values[best], column)} over {repetitions(table[table['run'] == best])}"
    if len(values) == 1:
        return f"{_run(best)} reaches a test {column} of {value}."
    claim = f"{_run(best)} has the {'highest' if highest else 'lowest'} test {column}: {value}."
    return f"{claim} {_level(values, level, column)}{_behind(values, level, column)}"


def _level(values: dict[str, Spread], level: Sequence[str], column: str) -> str:
    """Tell of the runs that are not behind the best by more than the spread."""
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
    if len(runs) <= FEW:
        return listing([f"{_run(run)} ({_value(values[run], column)})" for run in runs])
    ranked = sorted((values[run] for run in runs), key=lambda spread: spread.mean)
    return f"{len(runs)} runs, from {_value(ranked[0], column)} to {_value(ranked[-1], column)},"


def _value(spread: Spread, column: str) -> str:
    return plus_minus(spread, 100, "%") if column == "accuracy" else plus_minus(spread)


def _run(name: str) -> str:
    return f"<b>{escape(name)}</b>"


def _speed(table: pd.DataFrame) -> str:
    speeds = spreads(table, "samples_per_second")
    ranked = sorted(speeds, key=lambda run: speeds[run].mean, reverse=True)
    fast, slow = ranked[0], ranked[-1]
    ranks = {run: plural(count, "rank") for run, count in table.groupby("run")["ranks"].first().items()}
    rate = f"{rounded(speeds[fast].mean)} samples per second"
    if len(ranked) == 1:
        return f"It trains on {rate} with {ranks[fast]}."
    ratio = speeds[fast].mean / speeds[slow].mean
    repeated = speeds[fast].count > 1 < speeds[slow].count
    if ratio < NEAR or (repeated and not speeds[fast].beats(speeds[slow], highest=True)):
        return f"All train equally fast, at about {rate}."
    times = f"{rounded(ratio)} times {_run(slow)} on {ranks[slow]}"
    return f"{_run(fast)} trains fastest, on {rate} with {ranks[fast]}: {times}."


def _restarts(table: pd.DataFrame) -> str:
    count, interrupted = int(table["restarts"].sum()), int((table["restarts"] > 0).sum())
    if not count:
        return ""
    jobs = f"{interrupted} of {plural(len(table), 'training')}"
    return f"{jobs} {'was' if interrupted == 1 else 'were'} interrupted and resumed ({plural(count, 'restart')})."
