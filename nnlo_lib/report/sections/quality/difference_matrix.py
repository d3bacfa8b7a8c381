"""Matrices of the differences between runs: row minus column, with intervals and verdicts."""

from collections.abc import Sequence
from dataclasses import dataclass

from nnlo_lib.core.text_format import MISSING
from nnlo_lib.report.formatting import plural
from nnlo_lib.report.statistics.difference_text import difference_text, p_text
from nnlo_lib.report.statistics.run_comparison import RunComparison


@dataclass(frozen=True)
class DifferenceCell:
    """The difference between two runs: run of the row minus run of the column.

    Attributes:
        text: mean difference with its interval.
        verdict: `better` or `worse` (the run of the row), `differs` if the direction of the metric is unknown, or an
            empty string.
        note: seeds needed in addition, or an empty string.
        details: number of pairs and p-values, for a tooltip.
    """

    text: str
    verdict: str
    note: str
    details: str


@dataclass(frozen=True)
class DifferenceMatrix:
    """The differences of all pairs of runs in one metric; cells by (row, column)."""

    metric: str
    runs: tuple[str, ...]
    cells: dict[tuple[str, str], DifferenceCell]
    pairs_are: str


def difference_matrix(comparisons: Sequence[RunComparison]) -> DifferenceMatrix | None:
    """Return the matrix of one metric; None if no pair of runs has a known difference."""
    known = [each for each in comparisons if each.test.pairs]
    if not known:
        return None
    runs = tuple(dict.fromkeys(run for each in comparisons for run in (each.run, each.other)))
    cells = {(each.run, each.other): _cell(each, 1) for each in known}
    cells |= {(each.other, each.run): _cell(each, -1) for each in known}
    words = {"samples_per_second": "samples per second", "seconds": "training time"}
    metric = known[0].metric
    return DifferenceMatrix(words.get(metric.column, metric.words), runs, cells, pairs_text(known))


def pairs_text(comparisons: Sequence[RunComparison]) -> str:
    """Return what the pairs of the tests are, as text: `3 seeds`, `2 to 3 seeds`, `15 folds`, `360 samples`."""
    kinds = dict.fromkeys(each.method for each in comparisons)
    counts = {
        kind: sorted({each.test.pairs for each in comparisons if each.method == kind}) for kind in kinds
    }
    return " and ".join(
        plural(found[-1], kind.removesuffix("s"))
        if len(found) == 1
        else f"{found[0]:,} to {found[-1]:,} {kind}"
        for kind, found in counts.items()
    )


def _cell(comparison: RunComparison, sign: int) -> DifferenceCell:
    run = comparison.run if sign > 0 else comparison.other
    verdict = "differs" if comparison.differs else ""
    if comparison.better is not None:
        verdict = "better" if comparison.better == run else "worse"
    note = f"{plural(comparison.more_seeds, 'more seed')}" if comparison.more_seeds else ""
    parts = [pairs_text([comparison]), p_text(comparison.test.p_value)]
    if corrected := p_text(comparison.p_holm):
        parts.append(f"corrected {corrected}")
    if comparison.left_out:
        parts.append(f"{plural(comparison.left_out, 'training task')} without a partner left out")
    text = difference_text(comparison.metric, comparison.test, sign)
    return DifferenceCell(text or MISSING, verdict, note, ", ".join(filter(None, parts)))
