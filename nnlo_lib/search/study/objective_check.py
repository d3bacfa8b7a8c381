"""Check that the history of a run has the column that the objective of a search uses."""

import re

from nnlo_lib.config import Experiment
from nnlo_lib.config.base import suggest_name
from nnlo_lib.config.metrics import metric_column, metric_direction
from nnlo_lib.config.search import ObjectiveConfig

UNDIRECTED_METRICS = (
    "seconds",
    "samples_per_second",
    "bytes",
    "consensus_error",
    "consensus_error_normalised",
)
LOSS_COLUMN = re.compile(r"(train|val)_loss(_min|_max)?")
LOSS_SECTIONS = ("loss", "loss_weights", "problem")  # sections that define the loss


def find_objective_error(experiment: Experiment, objective: ObjectiveConfig) -> tuple[str, str] | None:
    """Return the wrong key of the objective and the reason, or None if the objective is valid."""
    metric, search = objective.metric, experiment.search
    assert search is not None
    names = ("loss", *map(metric_column, experiment.metrics))
    columns = [f"{split}_{name}" for split in ("train", "val") for name in names]
    spreads = [f"val_{name}_{end}" for name in names for end in ("min", "max")]
    if metric not in (*columns, *spreads, *UNDIRECTED_METRICS):
        return "metric", f"'{metric}' is not measured; {suggest_name(metric, columns)}"
    searched = "data.validation" in search.space
    if metric.startswith("val_") and not (experiment.data.validation or searched or search.folds.k > 1):
        return "metric", f"'{metric}' needs validation samples; set data.validation or search.folds.k"
    if LOSS_COLUMN.fullmatch(metric) and (reason := _incomparable(experiment)):
        # columns[len(names)] is val_loss; the next ones are validation metrics.
        other = next(iter(columns[len(names) + 1 :]), "one of `metrics`")
        return (
            "metric",
            f"{reason}, so {metric} cannot rank trials; set another metric, such as {other}",
        )
    if objective.direction is None and metric_direction(metric) is None:
        return "direction", f"required for {metric}; set minimize or maximize"
    return None


def _incomparable(experiment: Experiment) -> str | None:
    """Return the reason why the losses of two trials are not comparable, or None if they are."""
    assert experiment.search is not None
    if experiment.problem.name == "gan":
        return "the loss of a GAN is the loss of its critic and does not measure the quality of the samples"
    changing = [key for key in experiment.search.space if key.partition(".")[0] in LOSS_SECTIONS]
    return f"{changing[0]} changes the definition of the loss" if changing else None
