"""Which samples train and which validate."""

import numpy as np

from nnlo_lib.core.errors import UserError
from nnlo_lib.data.loading.shuffle import ShufflePurpose, shuffled
from nnlo_lib.data.readers import Indices, Labels


def split_train_validation(
    samples: int, labels: Labels | None, validation: float, folds: int, fold: int | None, seed: int
) -> tuple[Indices, Indices]:
    """Divide samples 0..samples-1 into (train, validation) indices, ascending, each sample in exactly one.

    Without `fold`, `validation` is the fraction held back; with it, fold number `fold` of `folds` validates,
    and over all folds each sample validates once. Given `labels` (samples,), each class is spread evenly.
    Raises UserError for a wish that leaves one side empty.
    """
    order = shuffled(np.arange(samples), seed, ShufflePurpose.VALIDATION)
    if labels is not None:
        order = order[np.argsort(labels[order], kind="stable")]
    chosen = _fraction(samples, validation) if fold is None else _fold(samples, folds, fold)
    held = np.zeros(samples, dtype=np.bool_)
    held[order[chosen]] = True
    return np.flatnonzero(~held), np.flatnonzero(held)


def _fraction(samples: int, validation: float) -> Indices:
    """Places, evenly spaced, of round(validation * samples) samples."""
    count = round(validation * samples)
    if not 0 <= validation < 1 or count == samples or (validation > 0 and count == 0):
        raise UserError(
            f"data.validation {validation} of {samples} samples holds {count} back; "
            f"both sides need at least one (0 is no validation): change data.validation or use more samples"
        )
    return ((np.arange(count) + 0.5) * samples / max(count, 1)).astype(np.int64)


def _fold(samples: int, folds: int, fold: int) -> Indices:
    """Places fold, fold + folds, fold + 2 folds, ..."""
    if folds < 2 or not 0 <= fold < folds:
        raise UserError(f"fold {fold} of {folds}: they are numbered from 0, and there must be at least 2")
    if samples < folds:
        raise UserError(f"{folds} folds asked of {samples} samples; lower `folds` or use more samples")
    return np.arange(fold, samples, folds)
