"""The training speeds of the runs in one sentence."""

import math
from collections.abc import Sequence

import pandas as pd

from nnlo_lib.report.formatting import bold, plural, rounded
from nnlo_lib.report.statistics.difference_text import difference_text
from nnlo_lib.report.statistics.run_comparison import RunComparison
from nnlo_lib.report.tables import spread_by_run
from nnlo_lib.report.time_base import TimeBase


def speed_sentence(table: pd.DataFrame, clock: TimeBase, comparisons: Sequence[RunComparison]) -> str:
    """Return a sentence on the fastest and the slowest run; measured and virtual speeds are not compared.

    Args:
        table: summary with one row per job.
        clock: clock of each run.
        comparisons: tests of the speed of each pair of runs.
    """
    if clock.mixed:
        return "Training speeds are not compared: some runs have a measured clock, others a virtual clock."
    speeds = spread_by_run(table, "samples_per_second")
    ranked = sorted(speeds, key=lambda run: speeds[run].mean, reverse=True)
    ranks = {run: plural(count, "rank") for run, count in table.groupby("run")["ranks"].first().items()}
    fast, slow = ranked[0], ranked[-1]
    rate = f"{rounded(speeds[fast].mean)} samples per {f'{clock.word} second'.strip()}"
    if len(ranked) == 1:
        return f"Its training speed is {rate} with {ranks[fast]}."
    first = f"{bold(fast)} has the highest mean training speed: {rate} with {ranks[fast]}"
    [comparison] = [each for each in comparisons if {each.run, each.other} == {fast, slow}]
    slowest = f"the slowest run, {bold(slow)} ({ranks[slow]})"
    if not math.isfinite(comparison.p_holm):
        ratio = rounded(speeds[fast].mean / speeds[slow].mean)
        untested = (
            " (not tested: the runs share a single training task)" if comparison.test.pairs == 1 else ""
        )
        return f"{first}, {ratio} times that of {slowest}{untested}."
    ratio = difference_text(comparison.metric, comparison.test, 1 if comparison.run == fast else -1)
    if comparison.differs:
        return f"{first}, {ratio} that of {slowest}."
    return f"{first}; it cannot be distinguished from that of {slowest}: {ratio} that speed."
