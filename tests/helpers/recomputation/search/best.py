"""Recomputation of the comparison of the best trial with the others that have the same epochs and folds."""

from collections.abc import Iterator

import numpy as np

from helpers.recomputation.audit import Audit
from helpers.recomputation.raw import counted
from helpers.recomputation.search.study import RawStudy, RawTrial
from helpers.recomputation.statistics.family import Comparison
from helpers.recomputation.statistics.matrix import difference_text
from helpers.recomputation.statistics.metrics import Metric
from helpers.recomputation.statistics.paired import LEVEL, Tested, t_test

MOST_DRAWN, MOST_NAMED = 12, 8  # trials
CONSTANTS = (
    "with its 95 % interval",
    "corrected for overlapping training sets (Nadeau and Bengio 2003)",
    "with a probability of at least 95 % (comparisons with the best, Hsu 1984; Bonferroni)",
)


def check_best(audit: Audit, study: RawStudy) -> None:
    """Compare the differences from the best trial, and the sentence on the trials that may be as good."""
    section = audit.page.section("search")
    tests = dict(_tests(study))
    worse = {trial for trial, test in tests.items() if _is_worse(test, LEVEL / len(tests))}
    rows = section.first("div", "spreads").all("div", "spread")
    for row, trial in zip(rows, study.ranked[:MOST_DRAWN], strict=True):
        notes = row.first("span", "total").all("small", "under")
        audit.require(len(notes) == (trial.number in tests), row, f"trial {trial.number} and the best one")
        if notes and trial.number in tests:
            test = Comparison(Metric(study.metric), "", "", "folds", tests[trial.number], 0)
            template, values = difference_text(test, 1)
            audit.same(notes[0], template + (", worse" if trial.number in worse else ""), *values)
    note = next(each for each in section.all("p", "aside") if "Thin marks" in each.text)
    for text in CONSTANTS:
        audit.says(note, text)
    _check_sentence(audit, study, list(tests), worse)


def _tests(study: RawStudy) -> Iterator[tuple[int, Tested]]:
    best, overlap = study.best, 1 / (study.fold_count - 1)
    for trial in study.ranked:
        if trial is not best and trial.last_rung == best.last_rung:
            yield trial.number, t_test(_folds(trial), _folds(best), overlap, 0.0)


def _folds(trial: RawTrial) -> np.ndarray:
    return np.array(trial.folds(trial.last_rung))


def _is_worse(test: Tested, level: float) -> bool:
    """Return whether a one-sided test finds a smaller accuracy."""
    return test.mean < 0 and test.p / 2 <= level


def _check_sentence(audit: Audit, study: RawStudy, compared: list[int], worse: set[int]) -> None:
    line = audit.page.section("search").first("p", "headline")
    if not compared:
        return audit.says(line, "No other trial has as many epochs and folds as the best trial.")
    equal = [number for number in compared if number not in worse]
    verb = "is" if len(worse) == 1 else "are"
    template = f"Of {counted(len(compared), 'other trial')} with the same epochs and folds, {len(worse)} {verb} worse"
    if equal:
        noun = "trial" if len(equal) == 1 else "trials"
        more = " and others" if len(equal) > MOST_NAMED else ""
        named = ", ".join(map(str, equal[:MOST_NAMED])) + more
        template += f", and {len(equal)} may be as good: {noun} {named}"
    return audit.says(line, f"{template}.")
