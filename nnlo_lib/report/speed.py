"""The sentence that compares how fast the runs train."""

import pandas as pd

from nnlo_lib.report.clock import Clock
from nnlo_lib.report.tables import spreads
from nnlo_lib.report.words import bold, plural, rounded

NEAR = 1.05  # ratio of speeds that is not worth a sentence


def speed(table: pd.DataFrame, clock: Clock) -> str:
    """Name the fastest run; nothing is compared across clocks."""
    if clock.mixed:
        return "Speeds are not compared: some are measured, others virtual."
    speeds = spreads(table, "samples_per_second")
    ranked = sorted(speeds, key=lambda run: speeds[run].mean, reverse=True)
    fast, slow = ranked[0], ranked[-1]
    ranks = {run: plural(count, "rank") for run, count in table.groupby("run")["ranks"].first().items()}
    rate = f"{rounded(speeds[fast].mean)} samples per {f'{clock.word} second'.strip()}"
    if len(ranked) == 1:
        return f"It trains on {rate} with {ranks[fast]}."
    ratio = speeds[fast].mean / speeds[slow].mean
    repeated = speeds[fast].count > 1 < speeds[slow].count
    if ratio < NEAR or (repeated and not speeds[fast].beats(speeds[slow], highest=True)):
        return f"All train equally fast, at about {rate}."
    times = f"{rounded(ratio)} times {bold(slow)} on {ranks[slow]}"
    return f"{bold(fast)} trains fastest, on {rate} with {ranks[fast]}: {times}."
