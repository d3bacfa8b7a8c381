"""Trials of a search and its searched keys as the report shows them: rows, order, format and axes."""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from nnlo_lib.core.text_format import number, plural
from nnlo_lib.report.figure import ValueAxis, thinned, value_axis
from nnlo_lib.report.formatting import listing, percent, plus_minus
from nnlo_lib.report.tables import Spread
from nnlo_lib.search.study.storage import StoredStudy, load_study
from nnlo_lib.search.study.trial import SearchPoint
from nnlo_lib.search.study.trial_summary import TrialSummary, adjustment_text
from nnlo_lib.state.finished_run import FinishedRun

MAX_DRAWN = 1000  # trials in each chart and in the table, to bound the size of the page


class StudyData:
    """A search as loaded from disk: all trials, the number of the best one, the metric, and the format of its values.

    `sign`: +1 if a smaller objective is better, else -1.
    """

    def __init__(self, study: StoredStudy) -> None:
        self.study, self.rows = study, study.trial_summaries
        self.best = study.snapshot.best_trial()
        self.sign, self.metric = study.search.objective.sign, study.search.objective.metric

    @classmethod
    def load(cls, folder: Path) -> "StudyData":
        """Read the folder of a search. Raises UserError if it contains no search or a file is damaged."""
        return cls(load_study(folder))

    @cached_property
    def ranked_rows(self) -> list[TrialSummary]:
        """The trials that have an objective: the best one, other candidates for it, and then trials with fewer folds or epochs."""
        candidates = self.study.snapshot.contenders
        known = [row for row in self.rows if math.isfinite(row.objective)]
        # Values of lower rungs that do not count, and of fewer folds, are not ordered among the candidates.
        known.sort(key=lambda row: (row.number not in candidates, self.sign * row.objective, row.number))
        return sorted(known, key=lambda row: row.number != self.best)

    @cached_property
    def trained_runs(self) -> list[FinishedRun]:
        """The run of each fold of each trial, in the order of the trials; it need not be finished."""
        fold_tasks = (decision.task for trial in self.study.snapshot.trials for decision in trial.decisions)
        folders = dict.fromkeys(task.run_folder(self.study.folder) for task in fold_tasks)
        return [*map(FinishedRun, folders)]

    @property
    def format_value(self) -> Callable[[float], str]:
        """Function that formats a value of the objective."""
        return percent if self._is_share else number

    def format_objective(self, row: TrialSummary) -> str:
        """Format the objective of a trial, with its standard error over folds if known, and say if it is adjusted."""
        spread = Spread(row.objective, row.standard_error, len(row.folds))
        text = plus_minus(spread, 100, "%") if self._is_share else plus_minus(spread)
        return f"{text} ({adjustment_text(row)})" if row.adjusted_from else text

    def objective_axis(self, values: Sequence[float]) -> ValueAxis:
        """Return an axis for values of the objective."""
        return value_axis(self.metric, pd.Series(values, dtype=float))

    @cached_property
    def drawn_rows(self) -> list[TrialSummary]:
        """The trials that charts draw: those that have an objective, at most MAX_DRAWN, evenly spaced in rank."""
        return thinned(self.ranked_rows, MAX_DRAWN)

    def coverage_note(self, first: str = "") -> str:
        """Return `first`, how many trials a chart draws, and the states of those without an objective."""
        total, drawn = plural(len(self.rows), "trial"), len(self.drawn_rows)
        notes = [first, total if drawn == len(self.rows) else f"{drawn} of {total}"]
        if drawn < len(self.ranked_rows):
            notes.append("evenly spaced from the best to the worst")
        if missing := Counter(row.state for row in self.rows if not math.isfinite(row.objective)):
            notes.append(f"without an objective: {listing([f'{n} {state}' for state, n in missing.items()])}")
        return "; ".join(filter(None, notes))

    @cached_property
    def _is_share(self) -> bool:
        return self.metric.endswith("accuracy") and all(0 <= row.objective <= 1 for row in self.ranked_rows)


class SearchedParameter(NamedTuple):
    """A searched key: its path, and the values of the trials in the order of the file; none for a numeric key without `choice`."""

    name: str
    is_log: bool
    choices: tuple[Any, ...]

    @property
    def short_name(self) -> str:
        """The last two parts of the key's path."""
        return ".".join(self.name.split(".")[-2:])

    def coordinate(self, point: SearchPoint) -> float:
        """Return a point's value as a number: its index in `choices`, itself, or its logarithm; NaN if the key is inactive."""
        if self.name not in point:
            return math.nan
        value = point[self.name]
        if self.choices:
            # Compared by repr, because True == 1 == 1.0 in Python, but they are different choices.
            return float([*map(repr, self.choices)].index(repr(value)))
        return math.log(value) if self.is_log else float(value)


def searched_parameters(data: StudyData, rows: Sequence[TrialSummary]) -> list[SearchedParameter]:
    """Return the keys that have at least two different values in `rows`."""
    found = []
    for name, dimension in data.study.search.space.items():
        present = {repr(row.point[name]): row.point[name] for row in rows if name in row.point}
        if len(present) < 2:
            continue
        choices: tuple[Any, ...] = ()
        # A bool is no number here, although its class is a subclass of int.
        numbers = [each for each in present.values() if type(each) in (int, float)]
        if dimension.choice or len(numbers) < len(present) or not all(map(math.isfinite, numbers)):
            # Listed choices come in the order of the file, before the others.
            listed = {repr(value): value for value in dimension.choice or () if repr(value) in present}
            choices = tuple((listed | present).values())
        found.append(SearchedParameter(name, dimension.kind.startswith("log"), choices))
    return found
