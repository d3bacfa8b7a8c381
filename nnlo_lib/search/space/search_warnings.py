"""Warnings about valid settings of a search that are probably a mistake."""

from nnlo_lib.config import Experiment
from nnlo_lib.config.search import GridSamplerConfig, SearchConfig
from nnlo_lib.search.space.space import count_distinct_points, count_trials
from nnlo_lib.search.space.validate import extremes


def search_warnings(experiment: Experiment) -> list[str]:
    """Return the warnings about the search of an experiment, which may have none."""
    search = experiment.search
    if search is None:
        return []
    left = unfinished_grid(search, count_trials(search))
    grid_warning = f"search.method: of the grid, {left}" if left else ""
    return list(filter(None, [_test_split_warning(experiment, search), grid_warning]))


def unfinished_grid(search: SearchConfig, trials: int) -> str:
    """Return how much of a grid a number of trials covers, as text; empty for all of it, and without a grid."""
    points = count_distinct_points(search)
    if not isinstance(search.method, GridSamplerConfig) or points is None or trials >= points:
        return ""
    return f"{trials} of {points:,} points are tried (search.trials: {search.trials}); remove search.trials to try all"


def _test_split_warning(experiment: Experiment, search: SearchConfig) -> str:
    """Return a warning if the test split selects the best trial, or else an empty string.

    Args:
        experiment: the experiment.
        search: its search.
    """
    if search.folds.k > 1 or not search.objective.metric.startswith("val_"):
        return ""
    searched = search.space.get("data.validation")
    if "test" not in (extremes(searched) if searched else (experiment.data.validation,)):
        return ""
    return (
        "data.validation: the test split selects the best trial, so the test result of this trial is optimistically "
        "biased; hold back training samples (data.validation: 0.1), or set search.folds.k"
    )
