"""What the folds of the trials say about the best trial: which trials are worse, and which may be as good."""

from collections.abc import Sequence

from nnlo_lib.report.formatting import UNBROKEN, plural
from nnlo_lib.report.search.study_data import StudyData
from nnlo_lib.report.statistics.best_candidates import TrialComparison, compare_with_best
from nnlo_lib.report.statistics.compared_metric import ComparedMetric
from nnlo_lib.report.statistics.difference_text import difference_text

MAX_NAMED_TRIALS = 8


def compare_trials(data: StudyData) -> list[TrialComparison]:
    """Return the comparison of the best trial with each other trial that has the same epochs and folds.

    Without a best trial, or if the best trial has fewer than two folds, the list is empty.
    """
    if data.best is None:
        return []
    best = data.rows[data.best]
    alike = [
        row for row in data.ranked_rows if row.epochs == best.epochs and row.fold_numbers == best.fold_numbers
    ]
    if len(best.folds) < 2 or len(alike) < 2:
        return []
    folds = {row.number: row.folds for row in alike}
    return compare_with_best(best.number, folds, larger_is_better=data.sign < 0)


def best_trial_sentence(data: StudyData, comparisons: Sequence[TrialComparison]) -> str:
    """Return a sentence on the trials that may be as good as the best one; empty without trials to compare."""
    if data.best is None or len(data.ranked_rows) < 2:
        return ""
    if len(data.rows[data.best].folds) < 2:
        return (
            "Each trial is a single training: differences between trials contain the random variation of one training "
            "(search.folds repeats a trial on several folds)."
        )
    if not comparisons:
        return "No other trial has as many epochs and folds as the best trial."
    equal = [each.trial for each in comparisons if not each.is_worse]
    worse = len(comparisons) - len(equal)
    first = f"Of {plural(len(comparisons), 'other trial')} with the same epochs and folds, {worse} {_be(worse)} worse"
    if not equal:
        return f"{first}."
    named = ", ".join(map(str, equal[:MAX_NAMED_TRIALS])) + (
        " and others" if len(equal) > MAX_NAMED_TRIALS else ""
    )
    return f"{first}, and {len(equal)} may be as good: {'trial' if len(equal) == 1 else 'trials'} {named}."


def differences_to_best(data: StudyData, comparisons: Sequence[TrialComparison]) -> dict[int, str]:
    """Return the mean difference of each compared trial from the best one, with interval and verdict, as text."""
    metric = ComparedMetric(data.metric, highest=data.sign < 0)
    return {
        each.trial: difference_text(metric, each.test) + (f",{UNBROKEN}worse" if each.is_worse else "")
        for each in comparisons
    }


def _be(count: int) -> str:
    return "is" if count == 1 else "are"
