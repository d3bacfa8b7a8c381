"""The figures of a report page, and the recomputation of each."""

from collections.abc import Callable

from helpers.recomputation.audit import Audit
from helpers.recomputation.raw import Trainings
from helpers.recomputation.resources import attempts, bars, clocks, costs, traffic, usage
from helpers.recomputation.sections import (
    comparison,
    confusion,
    curves,
    failed,
    header,
    nodes,
    origin,
)
from helpers.recomputation.statistics import headline, matrix, tables

FIGURES: dict[str, Callable[[Audit, Trainings], None]] = {
    "headline": headline.check_headline,
    "counts": header.check_counts,
    "published": failed.check_published,
    "failed": failed.check_failed,
    "remarks": header.check_remarks,
    "comparison": comparison.check_comparison,
    "dots": comparison.check_dots,
    "differences": matrix.check_differences,
    "summary.csv": tables.check_summary,
    "comparisons.csv": tables.check_comparisons,
    "all trainings": comparison.check_all_trainings,
    "curves": curves.check_curves,
    "validations": curves.check_validations,
    "confusion": confusion.check_confusion,
    "samples": header.check_samples,
    "nodes": nodes.check_nodes,
    "clocks": clocks.check_clocks,
    "time": bars.check_time,
    "usage": usage.check_usage,
    "attempts": attempts.check_attempts,
    "traffic": bars.check_traffic,
    "messages": traffic.check_messages,
    "settings": origin.check_settings,
    "layers": origin.check_layers,
    "costs": costs.check_costs,
    "facts": origin.check_facts,
}
