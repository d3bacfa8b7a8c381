"""Classifiers whose classes are no better than guesses, judged by each class alike, however rare a class is; imports no torch."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nnlo_lib.problems.set_metrics import set_metric

STANDARD_ERRORS = 2.0  # above a guess, within which a result is no better
ORDERED = 0.75  # roc_auc of outputs that are worth a threshold; a first epoch can have 0.7


@dataclass(frozen=True)
class Guessing:
    """Predicted classes that do not depend on the true class.

    Attributes:
        balanced_accuracy: mean over the classes of the fraction of their samples that is right.
        chance: balanced accuracy of a model that always names one class.
        roc_auc: of the outputs, if these order the samples by class nevertheless; else None.
    """

    balanced_accuracy: float
    chance: float
    roc_auc: float | None

    @property
    def text(self) -> str:
        """The numbers of the judgment."""
        text = f"balanced accuracy {self.balanced_accuracy:.1%} against {self.chance:.1%}"
        return text if self.roc_auc is None else f"{text}, but roc_auc {self.roc_auc:.3f}"

    @property
    def remedy(self) -> str:
        """What to try."""
        if self.roc_auc is not None:
            return (
                "the outputs order the samples by class, but the most probable class is (almost) always the same: judge the "
                "model by roc_auc or average_precision, or compare probability_<class> of `nnlo predict` with a threshold"
            )
        return "try a smaller learning rate, more epochs or other settings of the algorithm"


def guessing(
    evaluation: Mapping[str, Any], read_predictions: Callable[[], Mapping[str, Any]]
) -> Guessing | None:
    """Return the judgment of a classifier whose classes are guesses; None for other models.

    Args:
        evaluation: content of evaluation.json.
        read_predictions: returns the arrays of predictions.npz, empty if none were written; called if the classes are guesses.
    """
    confusion: Sequence[Sequence[int]] = evaluation.get("confusion") or []
    truths = [row for row in confusion if sum(row)]
    if len(truths) < 2:
        return None
    samples = sum(map(sum, truths))
    recalls = [row[k] / sum(row) for k, row in enumerate(confusion) if sum(row)]
    named = [sum(row[k] for row in confusion) / samples for k, row in enumerate(confusion) if sum(row)]
    # Of guesses with the same shares of the classes.
    variance = sum(share * (1 - share) / sum(row) for share, row in zip(named, truths, strict=True))
    balanced, chance = sum(recalls) / len(recalls), 1 / len(recalls)
    if balanced > chance + STANDARD_ERRORS * math.sqrt(variance) / len(recalls) + 1e-9:
        return None
    auc = evaluation.get("roc_auc")
    if auc is None and "predicted" in (predictions := read_predictions()):
        auc = set_metric("roc_auc", predictions["outputs"], predictions["targets"], None)
    errors = [math.sqrt((samples + 1) / 12 / sum(row) / (samples - sum(row))) for row in truths]
    orders = auc is not None and auc > max(ORDERED, 0.5 + STANDARD_ERRORS * sum(errors) / len(errors))
    return Guessing(balanced, chance, auc if orders else None)
