"""Number of outputs of a run's model."""

from math import prod

from nnlo_lib.config import Run
from nnlo_lib.config.problem import (
    ClassificationConfig,
    DenseClassificationConfig,
    GanConfig,
    RegressionConfig,
)
from nnlo_lib.core.errors import UserError
from nnlo_lib.data.store.manifest import DataManifest


def model_output_size(run: Run, manifest: DataManifest) -> int:
    """Return the number of model outputs: classes, or regression targets.

    In dense classification, they are the classes of a place. Two classes need one output with binary_cross_entropy. A GAN without class labels has 0.

    Raises:
        UserError: if the problem needs classes but the labels are not classes.
    """
    numbers = prod(manifest.labels.shape)
    if isinstance(run.problem, RegressionConfig):
        return numbers
    if isinstance(run.problem, DenseClassificationConfig):
        _refuse_one_label(manifest)
        return run.problem.classes
    if manifest.classes is None:
        if isinstance(run.problem, GanConfig):
            return 0
        if not manifest.labels.shape and isinstance(run.problem, ClassificationConfig):
            raise UserError(
                f"problem: classification needs classes, but the labels of {manifest.dataset} are "
                f"{manifest.labels.dtype} numbers; set problem: regression, or convert the labels to class numbers"
            )
        return numbers
    return 1 if _is_binary(run) and manifest.classes == 2 else manifest.classes


def _refuse_one_label(manifest: DataManifest) -> None:
    if not manifest.labels.shape:
        raise UserError(
            f"problem: dense_classification needs a label for each token or pixel, but a sample of {manifest.dataset} has a "
            "single label; set problem: classification"
        )


def _is_binary(run: Run) -> bool:
    first = next(iter(run.loss.values())) if isinstance(run.loss, dict) else run.loss
    return first == "binary_cross_entropy"
