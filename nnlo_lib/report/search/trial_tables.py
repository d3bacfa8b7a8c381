"""Tables of a search: all trials, the best trial compared with the others, the folds, and the causes of failure."""

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

import pandas as pd
from markupsafe import Markup, escape

from nnlo_lib.core.text_format import MISSING, plural
from nnlo_lib.report.figure import Figure, dot_spec
from nnlo_lib.report.formatting import UNBROKEN, bold, format_duration, listing
from nnlo_lib.report.search.study_data import MAX_DRAWN, SearchedParameter, StudyData
from nnlo_lib.report.statistics.comparison_text import TrialComparison, compare_with_best, difference_text
from nnlo_lib.report.statistics.run_comparison import ComparedMetric
from nnlo_lib.report.statistics.significance import MIN_PAIRS
from nnlo_lib.search.space.space import base_point
from nnlo_lib.search.study.trial_summary import (
    TrialSummary,
    describe_epochs,
    error_signature,
    format_front,
    format_mean,
    format_selection,
    format_value,
)

MAX_NAMED_TRIALS = 8  # trials in the sentence on the best trial
MAX_DRAWN_TRIALS = 12  # trials; only the best ones are drawn by fold


def search_headline(data: StudyData) -> Markup:
    """Return sentences that name the best trial and count the other trials by state."""
    rows, search, known = data.rows, data.study.search, data.study.snapshot
    if data.best is None:
        return Markup(f"None of {plural(len(rows), 'trial')} has a result yet.")
    # Trials are numbered from 0 in the order of `rows`.
    best = rows[data.best]
    point = listing(
        [f"{bold(key)} {bold(format_value(value))}" for key, value in best.point.items()]
        or ["the base configuration"]
    )
    error = f" (± standard error over {len(best.folds)} folds)" if math.isfinite(best.standard_error) else ""
    selected = f" ({selection})" if (selection := format_selection(known)) else ""
    counts = Counter(row.state for row in rows)
    others = [f"{counts[it]} {it}" for it in ("stopped", "running", "failed", "unwanted") if counts[it]]
    states = f" Of {plural(len(rows), 'trial')}: {listing(others)}." if others else ""
    reason, value = f"has the best {escape(data.metric)} of {plural(len(rows), 'trial')}{selected}", ""
    if front := format_front(known):
        reason, value = f"is {escape(front)}", f"{escape(data.metric)} "
    value += data.format_objective(best) + error
    for each, mean in zip(search.objectives[1:], best.others, strict=False):
        value += f", {escape(each.metric)} {format_mean(mean)}"
    sentence = f"Trial {best.number} {reason}: {value}, with {point}.{states}"
    parts = [f"trial {trial} from epoch {epoch}" for trial, epoch in known.lineage(data.best).items()]
    lineage = f" Its training: {', '.join(parts)}." if len(parts) > 1 else ""
    epochs = describe_epochs(search.objective, best)
    # Markup is safe here: `bold` and `escape` have escaped the names that come from the user.
    return Markup(f"{sentence}{lineage} {epochs} Search method: {search.method.name}.")


def trial_rows(data: StudyData, keys: Sequence[SearchedParameter]) -> tuple[list[str], list[list[str]]]:
    """Return headings and a row for each trial, the best first, trials without an objective last; at most MAX_DRAWN."""
    trials = data.study.snapshot.trials
    best, continues = data.study.search.objective.epoch == "best", any(trial.parent for trial in trials)
    metrics = [each.metric for each in data.study.search.objectives]
    headings = ["trial", *metrics, "status", "epochs", *["best epochs"] * best, "time"]
    headings += [*(key.short_name for key in keys), *["continues"] * continues]
    cells, rest = [], [row for row in data.rows if not math.isfinite(row.objective)]
    for row in [*data.ranked_rows, *rest][:MAX_DRAWN]:
        values = [format_value(row.point[key.name]) if key.name in row.point else MISSING for key in keys]
        known = math.isfinite(row.objective)
        objective = data.format_objective(row) if known else MISSING
        epochs = [", ".join(map(str, row.selected_epochs)) if known else MISSING] * best
        others = [*map(format_mean, row.others or [math.nan] * len(metrics[1:]))]
        shown = [*others, row.state, str(row.epochs), *epochs, format_duration(row.seconds)]
        if continues:
            parent = trials[row.number].parent
            values.append(f"trial {parent.trial} from epoch {parent.epochs}" if parent else MISSING)
        cells.append([str(row.number), objective, *shown, *values])
    return headings, cells


def compare_trials(data: StudyData) -> list[TrialComparison]:
    """Return the comparison of the best trial with each other trial that has the same epochs and folds.

    The list is empty without a best trial, if it has fewer folds than a test needs, and if it has not the best first objective.
    """
    if data.best is None or data.study.search.choose == "knee":
        return []
    best = data.rows[data.best]
    alike = [
        row for row in data.ranked_rows if row.epochs == best.epochs and row.fold_numbers == best.fold_numbers
    ]
    if len(best.folds) < MIN_PAIRS or len(alike) < 2:
        return []
    folds = {row.number: row.folds for row in alike}
    return compare_with_best(best.number, folds, larger_is_better=data.sign < 0)


def best_trial_sentence(data: StudyData, comparisons: Sequence[TrialComparison]) -> str:
    """Return a sentence on the trials that may be as good as the best one; empty without trials to compare."""
    if data.best is None or len(data.ranked_rows) < 2 or data.study.search.choose == "knee":
        return ""
    if len(data.rows[data.best].folds) < 2:
        return (
            "Each trial is a single training: differences between trials contain the random variation of one training "
            "(search.folds repeats a trial on several folds)."
        )
    if len(data.rows[data.best].folds) < MIN_PAIRS:
        return f"The trials are not tested against each other: a test needs {MIN_PAIRS} folds."
    if not comparisons:
        return "No other trial has as many epochs and folds as the best trial."
    equal = [each.trial for each in comparisons if not each.is_worse]
    worse = len(comparisons) - len(equal)
    others, are = plural(len(comparisons), "other trial"), "is" if worse == 1 else "are"
    first = f"Of {others} with the same epochs and folds, {worse} {are} worse"
    if not equal:
        return f"{first}."
    names = ", ".join(map(str, equal[:MAX_NAMED_TRIALS]))
    more, trials = " and others" * (len(equal) > MAX_NAMED_TRIALS), "trial" + "s" * (len(equal) > 1)
    return f"{first}, and {len(equal)} may be as good: {trials} {names}{more}."


def base_sentence(data: StudyData, comparisons: Sequence[TrialComparison]) -> str:
    """Return a sentence on the best trial against the experiment's own settings; empty if they are not the first trial."""
    is_uncompared = bool(data.best) and data.study.search.choose == "knee"
    if data.best is None or is_uncompared or data.rows[0].point != base_point(data.study.experiment):
        return ""
    if data.best == 0:
        return "The experiment's own settings (trial 0) are the best trial."
    against = "the experiment's own settings (trial 0)"
    found = next((each for each in comparisons if each.trial == 0), None)
    if found is None:
        other = "trial 0 has other epochs or folds"
        is_few = len(data.rows[data.best].folds) < MIN_PAIRS
        reason = f"a test needs {MIN_PAIRS} folds (search.folds.k)" if is_few else other
        return f"The best trial cannot be compared with {against}: {reason}."
    metric = ComparedMetric(data.metric, highest=data.sign < 0)
    verdict = "" if found.is_worse else ", which may be chance"
    return f"Best against {against}: {difference_text(metric, found.test, sign=-1)}{verdict}."


def fold_figure(data: StudyData, comparisons: Sequence[TrialComparison]) -> Figure | None:
    """Return the folds of the best trials, each with its mean difference from the best one, interval and verdict.

    Return None if no trial has folds or all values are equal.
    """
    metric = ComparedMetric(data.metric, highest=data.sign < 0)
    differences = {
        each.trial: difference_text(metric, each.test) + (f",{UNBROKEN}worse" if each.is_worse else "")
        for each in comparisons
    }
    rows = [row for row in data.ranked_rows if len(row.folds) > 1][:MAX_DRAWN_TRIALS]
    # The adjusted mean of a trial may be outside of the values of its folds.
    values = pd.Series([value for row in rows for value in (*row.folds, row.objective)], dtype=float)
    if values.nunique() < 2:
        return None
    y, parts, cells = data.objective_axis(list(values)), [], []
    for place, row in enumerate(rows):
        objective, difference = data.format_objective(row), differences.get(row.number)
        label = " · ".join(filter(None, [f"trial {row.number}", objective, difference]))
        color = 0 if place == 0 else 6
        parts += [(label, color, fold, y.drawn(fold), y.drawn(row.objective)) for fold in row.folds]
        folds = ", ".join(map(data.format_value, row.folds))
        cells.append([str(row.number), objective, folds, *[difference or MISSING] * bool(differences)])
    spec = dot_spec(pd.DataFrame(parts, columns=["label", "color", "value", "y", "mean"]), y.encoding)
    headings = ["trial", data.metric, "folds", *["difference from the best"] * bool(differences)]
    text = f"{data.metric} of each fold, a row of dots per trial."
    return Figure("Folds of the best trials", y.note, text, spec, headings, cells)


def failure_groups(data: StudyData) -> list[dict[str, Any]]:
    """Return the causes of failure, the most frequent first: state, number and numbers of its trials, first message."""
    groups: dict[tuple[str, str], list[TrialSummary]] = defaultdict(list)
    for row in data.rows:
        if row.state in ("failed", "unwanted"):
            # Messages that differ only in numbers or settings have the same signature.
            groups[error_signature(row.reason), row.state].append(row)
    found = []
    for (_, state), rows in sorted(groups.items(), key=lambda group: (-len(group[1]), group[1][0].number)):
        shown = ", ".join(str(row.number) for row in rows[:MAX_DRAWN_TRIALS])
        more = f" and {len(rows) - MAX_DRAWN_TRIALS} more" if len(rows) > MAX_DRAWN_TRIALS else ""
        reason = rows[0].reason or "no reason recorded"
        found.append({"reason": reason, "state": state, "number": len(rows), "trials": shown + more})
    return found
