"""The figures of the page of a search, and the recomputation of each."""

from collections.abc import Callable

from helpers.recomputation.audit import Audit
from helpers.recomputation.search import best, charts, coordinates, forest, lanes, tables
from helpers.recomputation.search.study import RawStudy

SEARCH_FIGURES: dict[str, Callable[[Audit, RawStudy], None]] = {
    "headline": tables.check_search_headline,
    "best": best.check_best,
    "convergence": charts.check_convergence,
    "learning curves": charts.check_trial_curves,
    "rungs": tables.check_rungs,
    "importance": forest.check_importance,
    "dependence": forest.check_dependence,
    "dependence of trials": charts.check_dependence_marks,
    "coordinates": coordinates.check_coordinates,
    "folds": tables.check_folds,
    "notes": tables.check_notes,
    "lanes": lanes.check_lanes,
    "failures": tables.check_failures,
    "trials": tables.check_trials,
}
