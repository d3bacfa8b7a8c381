"""Split of the samples into training and validation."""

from collections.abc import Sequence

import numpy as np

from nnlo_lib.core.errors import UserError
from nnlo_lib.data.loading.shuffle import ShufflePurpose, shuffled
from nnlo_lib.data.readers import Indices, Labels


def split_train_validation(
    samples: int, labels: Labels | None, validation: float, folds: int, fold: int | None, seed: int
) -> tuple[Indices, Indices]:
    """Return ascending (train, validation) indices; each sample 0..samples-1 is in exactly one of them.

    Args:
        samples: number of samples.
        labels: classes (samples,), distributed evenly between training and validation; None ignores classes.
        validation: fraction of the samples for validation; ignored if `fold` is given.
        folds: number of folds; over all folds each sample is in the validation once.
        fold: number of the fold that validates, from 0; None splits by `validation`.
        seed: seed of the random order.
    Raises:
        UserError: if training or validation has no sample (`validation` 0 is allowed), or if `fold` or `folds`
            is out of range.
    """
    order = shuffled(np.arange(samples), seed, ShufflePurpose.VALIDATION)
    if labels is not None:
        # Evenly spaced samples of this order contain each class in proportion. The stable sort keeps the
        # random order within a class.
        order = order[np.argsort(labels[order], kind="stable")]
    chosen = _fraction(samples, validation) if fold is None else _fold(samples, folds, fold)
    held = np.zeros(samples, dtype=np.bool_)
    held[order[chosen]] = True
    return np.flatnonzero(~held), np.flatnonzero(held)


def split_whole_shards(
    sizes: Sequence[int], validation: float, folds: int, fold: int | None, seed: int
) -> tuple[Indices, Indices]:
    """Return ascending (train, validation) indices of samples; all samples of a shard are in the same one.

    Args:
        sizes: number of samples of each shard.
        validation: fraction of the shards for validation; ignored if `fold` is given.
        folds: number of folds; over all folds each shard is in the validation once.
        fold: number of the fold that validates, from 0; None splits by `validation`.
        seed: seed of the random order.

    Raises:
        UserError: as split_train_validation does, for shards instead of samples.
    """
    try:
        _, held = split_train_validation(len(sizes), None, validation, folds, fold, seed)
    except UserError as error:
        raise UserError(f"data.split_by: shards are divided, not samples: {error}") from error
    is_held = np.isin(np.repeat(np.arange(len(sizes)), sizes), held)
    return np.flatnonzero(~is_held), np.flatnonzero(is_held)


def _fraction(samples: int, validation: float) -> Indices:
    """Return round(validation * samples) evenly spaced indices of 0..samples-1."""
    count = round(validation * samples)
    if not 0 <= validation < 1 or count == samples or (validation > 0 and count == 0):
        raise UserError(
            f"data.validation: {validation} of {samples} samples gives {count} validation samples, but training and "
            f"validation need at least one each; change data.validation (0: no validation) or use more samples"
        )
    return ((np.arange(count) + 0.5) * samples / max(count, 1)).astype(np.int64)


def _fold(samples: int, folds: int, fold: int) -> Indices:
    """Return the indices fold, fold + folds, fold + 2 folds, ... below `samples`.

    Args:
        samples: number of samples.
        folds: number of folds.
        fold: number of the fold, from 0.
    """
    if folds < 2 or not 0 <= fold < folds:
        raise UserError(f"fold {fold} of {folds} does not exist; use 2 or more folds, numbered from 0")
    if samples < folds:
        raise UserError(
            f"{folds} folds need at least {folds} samples, not {samples}; use fewer folds or more samples"
        )
    return np.arange(fold, samples, folds)
