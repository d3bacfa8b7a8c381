"""A search as the report reads it: a row for each trial, and how its objective is drawn and written."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pandas as pd

from nnlo_lib.report import plots
from nnlo_lib.report.axis import Axis
from nnlo_lib.report.tables import Spread
from nnlo_lib.report.words import number, percent, plus_minus
from nnlo_lib.search.record import Record, read_record
from nnlo_lib.search.row import Row


@dataclass(frozen=True)
class SearchData:
    """What is on disk of a search."""

    record: Record

    @classmethod
    def load(cls, folder: Path) -> "SearchData":
        """Read the folder of a search. Raises UserError if there is none or a file is damaged."""
        return cls(read_record(folder))

    @cached_property
    def rows(self) -> list[Row]:
        """Return all trials."""
        return self.record.rows

    @cached_property
    def worthy(self) -> list[Row]:
        """Return the trials that have an objective, the best first."""
        known = [row for row in self.rows if math.isfinite(row.objective)]
        ranked = sorted(known, key=lambda row: (self.sign * row.objective, row.number))
        return sorted(ranked, key=lambda row: row.number != self.best)

    @property
    def best(self) -> int | None:
        """Return the number of the best trial."""
        return self.record.known.best()

    @property
    def sign(self) -> int:
        """+1 where smaller is better."""
        return self.record.search.objective.sign

    @property
    def metric(self) -> str:
        """Return the name of the objective."""
        return self.record.search.objective.metric

    @property
    def say(self) -> Callable[[float], str]:
        """Return what writes a value of the objective."""
        return percent if self._is_share else number

    def with_error(self, row: Row) -> str:
        """Write what a trial is worth, with the standard error over its folds if there is one."""
        spread = Spread(row.objective, row.error, len(row.folds))
        return plus_minus(spread, 100, "%") if self._is_share else plus_minus(spread)

    def vertical(self, values: "pd.Series[float]") -> tuple[Axis, str]:
        """Return an axis for values of the objective, and a note on its scale."""
        y, note, _ = plots.vertical(self.metric, values)
        return y, note

    def top(self, trial: int) -> int:
        """Return the highest rung of a trial of which something is known, 0 if there is none."""
        known = self.record.known
        rungs = (epochs for epochs in reversed(known.rungs(trial)) if known.known(trial, epochs))
        return next(rungs, 0)

    @cached_property
    def _is_share(self) -> bool:
        return self.metric.endswith("accuracy") and all(0 <= row.objective <= 1 for row in self.worthy)


def named(row: Row) -> str:
    """Return the name of a trial."""
    return f"trial {row.number}"
