"""Capacity of a search: the time that was available for its fold tasks, and the time they used."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nnlo_lib.config.paths import SearchPaths
from nnlo_lib.report.formatting import plural
from nnlo_lib.search.study.budget import union_length
from nnlo_lib.search.study.trial import Result


@dataclass(frozen=True)
class TrainingCapacity:
    """Used and available time of a search.

    Attributes:
        trained_s: sum of the seconds of all fold tasks.
        available_s: seconds of all slots in which fold tasks could run.
        description: the definition of `available_s` as text.
    """

    trained_s: float
    available_s: float
    description: str

    @property
    def utilization(self) -> float:
        """Share of the available time in which a fold task ran."""
        return self.trained_s / self.available_s if self.available_s else 0.0


def training_capacity(
    folder: Path, timed: Sequence[Result], lanes: Sequence[int], parallel: int
) -> TrainingCapacity:
    """Return the capacity of the MPI pool's allocations, plus the slots of fold tasks outside of them.

    An allocation contributes the time of its rank groups. Outside of allocations, the wall time in which
    fold tasks ran counts once per slot; the number of slots is `parallel`, or the highest lane + 1 if that is
    larger.

    Args:
        folder: folder of the search.
        timed: results with a start and an end.
        lanes: lane of each result; results in the same lane do not overlap.
        parallel: search.parallel of the configuration.
    """
    rows = _allocations(folder)
    outside = [(result, lane) for result, lane in zip(timed, lanes, strict=True) if not _within(result, rows)]
    slots = max([parallel, *(1 + lane for _, lane in outside)])
    wall = union_length(span for result, _ in outside for span in result.spans)
    parts = [f"the time of {_rank_groups_text(rows)}"] if rows else []
    counted = f"{slots} (search.parallel)" if slots == parallel else plural(slots, "slot")
    parts += [f"{counted} × wall time"] if outside else []
    return TrainingCapacity(
        # Results within an allocation are already contained in its `trained`.
        sum(row["trained"] for row in rows) + sum(result.seconds for result, _ in outside),
        sum(_allocated(row) for row in rows) + slots * wall,
        " and ".join(parts),
    )


def _allocations(folder: Path) -> list[dict[str, Any]]:
    try:
        return [
            json.loads(line) for line in SearchPaths(folder).state.pool_utilization.read_text().splitlines()
        ]
    except FileNotFoundError:
        return []


def _allocated(row: dict[str, Any]) -> float:
    """Return the seconds of an allocation, summed over the rank groups that were alive."""
    # The ratio of the two recorded numbers excludes lost rank groups, which `blocks` includes. Without any
    # training it is 0, and the time of all groups is the best estimate.
    seconds = (
        row["trained"] / row["utilisation"]
        if row["utilisation"]
        else row["blocks"] * (row["ended"] - row["begun"])
    )
    return float(seconds)


def _within(result: Result, rows: Sequence[dict[str, Any]]) -> bool:
    return any(row["begun"] <= result.started <= row["ended"] for row in rows)


def _rank_groups_text(rows: Sequence[dict[str, Any]]) -> str:
    counts = sorted({row["blocks"] for row in rows})
    return plural(counts[0], "rank group") if len(counts) == 1 else f"{counts[0]} to {counts[-1]} rank groups"
