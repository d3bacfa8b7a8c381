"""Comparison of the matrices of differences with recomputed tests."""

import math
from collections.abc import Sequence
from typing import Any

from helpers.recomputation.audit import Audit
from helpers.recomputation.element import Element
from helpers.recomputation.quantity import Difference
from helpers.recomputation.raw import Trainings, counted
from helpers.recomputation.statistics.family import Comparison, family
from helpers.recomputation.statistics.metrics import compared_metrics

CONSTANTS = (
    "with the 95 % interval of this one difference",
    "the probability of any false verdict in a table is at most 5 %",
    "with a probability of 80 %",
)


def check_differences(audit: Audit, raw: Trainings) -> None:
    """Compare each matrix of differences: means, intervals, p-values, verdicts and further seeds."""
    section = audit.page.section("comparison")
    families = [family(raw, metric) for metric in compared_metrics(raw)]
    families = [each for each in families if any(one.test.pairs for one in each)]
    tables, titles = section.all("table", "differences"), section.all("h3")
    audit.require(len(tables) == len(families), section, f"{len(tables)} matrices of {len(families)} metrics")
    for title, table, each in zip(titles, tables, families, strict=False):
        prefix = "Differences of " if each is families[0] else ""
        audit.own(title, f"{prefix}{each[0].metric.words}")
        audit.same(title.first("small"), pairs_text([one for one in each if one.test.pairs]))
        _check_matrix(audit, table, each, list(raw.runs))
    if families:
        _check_note(audit, section, raw)


def _check_note(audit: Audit, section: Element, raw: Trainings) -> None:
    note = next(each for each in section.all("p", "aside") if "paired differences" in each.text)
    for text in CONSTANTS:
        audit.says(note, text)
    folds = raw.jobs[0].summary["fold"] is not None
    correction = "corrected for overlapping training sets (Nadeau and Bengio 2003)"
    audit.says(note, correction) if folds else audit.require(correction not in note.text, note, correction)


def pairs_text(comparisons: Sequence[Comparison]) -> str:
    """Return what the pairs are: `3 seeds and 355 samples`."""
    texts = []
    for kind in dict.fromkeys(each.kind for each in comparisons):
        counts = sorted({each.test.pairs for each in comparisons if each.kind == kind})
        several = f"{counts[0]:,} to {counts[-1]:,} {kind}"
        texts.append(counted(counts[0], kind.removesuffix("s")) if len(counts) == 1 else several)
    return " and ".join(texts)


def _check_matrix(audit: Audit, table: Element, comparisons: list[Comparison], runs: list[str]) -> None:
    by_pair = {frozenset((each.run, each.other)): each for each in comparisons}
    audit.require([each.text for each in table.first("thead").all("th")] == runs, table, f"columns {runs}")
    for row, run in zip(table.first("tbody").all("tr"), runs, strict=True):
        audit.require(row.first("th").text == run, row, f"the row of {run}")
        for cell, other in zip(row.all("td"), runs, strict=True):
            found = by_pair.get(frozenset((run, other)))
            if found is None or not found.test.pairs:
                audit.require(not cell.text and not cell["title"], cell, "a difference without a pair")
            else:
                _check_cell(audit, cell, found, run)


def _check_cell(audit: Audit, cell: Element, comparison: Comparison, run: str) -> None:
    template, values = difference_text(comparison, comparison.sign(run))
    audit.own(cell, template, *values)
    verdict = _verdict(comparison, run)
    audit.require(cell["class"] == verdict, cell, f"the verdict is {verdict!r}")
    _check_tooltip(audit, cell, comparison)
    notes = cell.all("small", "under")
    if verdict:
        audit.same(notes[0], verdict) if notes else audit.differ(cell, f"no verdict {verdict}")
        return
    audit.require(bool(notes) == comparison.needs_seeds, cell, f"needs seeds: {comparison.needs_seeds}")
    for note in notes:
        more = int(note.text.partition(" ")[0].replace(",", ""))
        audit.same(note, counted(more, "more seed"))
        audit.require(comparison.suffices(more), note, f"{more} more seeds are too many or too few")


def _verdict(comparison: Comparison, run: str) -> str:
    if not comparison.better:
        return "differs" if comparison.differs else ""
    return "better" if comparison.better == run else "worse"


def _check_tooltip(audit: Audit, cell: Element, comparison: Comparison) -> None:
    parts, values = [pairs_text([comparison])], []
    for name, p in (("p", comparison.test.p), ("corrected p", comparison.p_holm)):
        if not math.isnan(p):
            parts.append(f"{name} < 0.001" if p < 0.001 else f"{name} = {{}}")
            values += [p] if p >= 0.001 else []
    if comparison.left_out:
        parts.append(f"{counted(comparison.left_out, 'training task')} without a partner left out")
    audit.attribute(cell, "title", ", ".join(parts), *values)


def difference_text(comparison: Comparison, sign: int) -> tuple[str, list[Any]]:
    """Return a template of a difference with its interval, and its values as a reader sees them."""
    metric, test = comparison.metric, comparison.test
    scale = sign * (100 if metric.is_accuracy else 1)
    ends = [scale * each for each in (test.mean, *(test.low, test.high)[::sign])]
    shown = list(map(math.exp, ends)) if metric.is_ratio else list(map(Difference, ends))
    unit = " times" if metric.is_ratio else " points" if metric.is_accuracy else ""
    # A difference of zero has the sign of the direction, too.
    plus = "+" if not metric.is_ratio and math.copysign(1, ends[0]) > 0 else ""
    if math.isnan(test.low):
        return f"{plus}{{}}{unit}", shown[:1]
    return f"{plus}{{}} [{{}}, {{}}]{unit}", shown
