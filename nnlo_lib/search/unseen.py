"""Whether a search leaves samples that none of its decisions has looked at."""

from nnlo_lib.config import Experiment
from nnlo_lib.search.check import extremes


def seen_test(experiment: Experiment) -> str:
    """Say so if the test split chooses among the trials, empty if not."""
    search = experiment.search
    if search is None or search.folds.k > 1 or not search.objective.metric.startswith("val_"):
        return ""
    searched = search.space.get("data.validation")
    if "test" not in (extremes(searched) if searched else (experiment.data.validation,)):
        return ""
    return (
        "data.validation: the test split chooses among the trials, so that what it then says of the best is too good; "
        "hold training samples back (data.validation: 0.1), or use search.folds.k"
    )
