"""Partition of the samples: into training and validation, among workers, and the file `partition.npz` of both.

Studies of heterogeneous data divide the training samples among workers by one of four schemes. `by_class` is
DiNNO's hetero (Yu et al. 2022, arXiv:2109.08665) with all classes. `dirichlet` divides every class in proportions
p ~ Dir(alpha) over the workers (Yurochkin et al. 2019, arXiv:1905.12022); Hsu et al. 2019 (arXiv:1909.06335) instead
draw a mixture of classes for each worker.
`sorted` cuts the samples sorted by class into one contiguous piece per worker (McMahan et al. 2017,
arXiv:1602.05629, give two pieces to each worker). `contiguous` cuts the samples in their stored order.

Random numbers come from numpy's RandomState because its streams are frozen (NEP 19): a seed gives the same
partition everywhere, up to rounding of log and exp.
"""

import io
from collections.abc import Sequence
from pathlib import Path
from zipfile import ZipFile

import numpy as np

from nnlo_lib.core.atomic_file import atomic_write
from nnlo_lib.core.errors import UserError
from nnlo_lib.core.text_format import plural
from nnlo_lib.data.loading.sampler import ShufflePurpose, shuffled
from nnlo_lib.data.readers.base import Array, Indices, Labels
from nnlo_lib.data.store.shard import write_shard

PARTITION_STREAM = 0x776F726B  # "work": independent of the streams in nnlo_lib.data.loading.sampler


def split_train_validation(
    samples: int, labels: Labels | None, validation: float, folds: int, fold: int | None, seed: int
) -> tuple[Indices, Indices]:
    """Return ascending (train, validation) indices; each sample 0..samples-1 is in exactly one of them.

    Classes are distributed evenly, unless `labels` is None. Over all folds, each sample is in the validation once.

    Raises UserError if training or validation has no sample (`validation` 0 is allowed).
    """
    if fold is None:
        count = round(validation * samples)
        if not 0 <= validation < 1 or count == samples or (validation > 0 and count == 0):
            raise UserError(
                f"data.validation: {validation} of {samples} samples gives {count} validation samples, but training and "
                f"validation need at least one each; change data.validation (0: no validation) or use more samples"
            )
        chosen = ((np.arange(count) + 0.5) * samples / max(count, 1)).astype(np.int64)
    else:
        if folds < 2 or not 0 <= fold < folds:
            raise UserError(f"fold {fold} of {folds} does not exist; use 2 or more folds, numbered from 0")
        if samples < folds:
            raise UserError(
                f"{folds} folds need at least {folds} samples, not {samples}; use fewer folds or more samples"
            )
        chosen = np.arange(fold, samples, folds)
    if not len(chosen):  # to shuffle millions of samples takes seconds
        return np.arange(samples), chosen
    order = shuffled(np.arange(samples), seed, ShufflePurpose.VALIDATION)
    if labels is not None:
        # Evenly spaced samples of this order contain each class in proportion. The stable sort keeps the
        # random order within a class.
        order = order[np.argsort(labels[order], kind="stable")]
    held = np.zeros(samples, dtype=np.bool_)
    held[order[chosen]] = True
    return np.flatnonzero(~held), np.flatnonzero(held)


def split_whole_shards(
    sizes: Sequence[int], validation: float, folds: int, fold: int | None, seed: int
) -> tuple[Indices, Indices]:
    """Return (train, validation) like `split_train_validation`, which here divides shards of `sizes` samples each.

    All samples of a shard are in the same one.
    """
    try:
        _, held = split_train_validation(len(sizes), None, validation, folds, fold, seed)
    except UserError as error:
        raise UserError(f"data.split_by: shards are divided, not samples: {error}") from error
    is_held = np.isin(np.repeat(np.arange(len(sizes)), sizes), held)
    return np.flatnonzero(~is_held), np.flatnonzero(is_held)


def assign_to_workers(
    train: Indices, labels: Array | None, workers: int, scheme: str, seed: int, alpha: float = 0.5
) -> list[Indices]:
    """Return one ascending array of samples per worker.

    Each sample belongs to exactly one worker and each worker has at least one sample.

    A large concentration `alpha` of dirichlet divides evenly, a small one gives each worker few classes.

    Raises UserError if the labels are not classes or if there are fewer samples than workers.
    """
    if scheme != "contiguous" and (labels is None or labels.dtype.kind not in "iu" or labels.ndim != 1):
        raise UserError(
            f"data.partition: {scheme} divides the samples by class, but the labels of this data set are not "
            f"classes; set data.partition: {{name: iid}}"
        )
    if len(train) < workers:
        raise UserError(
            f"data.partition: {scheme} needs a training sample for each worker, but there are {len(train)} samples "
            f"for {workers} workers; lower parallel.ranks, or use more samples (data.dataset, data.validation)"
        )
    if labels is None or scheme == "contiguous":
        return np.array_split(train, workers)
    classes = labels[train]
    stream = np.random.RandomState(np.random.MT19937(np.random.SeedSequence([seed, PARTITION_STREAM])))
    # The order of the draws, proportions before the permutation, is fixed: another order changes the
    # partitions of finished studies.
    sizes = np.unique(classes, return_counts=True)[1]
    if scheme == "dirichlet":
        owners = _dirichlet(sizes, workers, alpha, stream)
    else:
        owners = _even(len(train), workers) if scheme == "sorted" else _by_class(sizes, workers)
    # Files can be ordered by writer or day; workers that share a class must not differ by that.
    order = np.arange(len(train)) if scheme == "sorted" else stream.permutation(len(train))
    order = order[np.argsort(classes[order], kind="stable")]
    return [np.sort(train[order[owners == worker]]) for worker in range(workers)]


def _even(count: int, workers: int) -> Indices:
    """Return the worker of each of `count` items: contiguous pieces with sizes that differ by at most one."""
    return np.arange(count) * workers // count


def _by_class(sizes: Indices, workers: int) -> Indices:
    """Give each worker whole neighboring classes, in equal number (+-1).

    If there are more workers than classes, each worker gets one class and several workers share a class
    evenly: each further worker joins the class with the most samples per worker.
    """
    if workers <= len(sizes):
        return np.repeat(_even(len(sizes), workers), sizes)
    sharing = np.ones(len(sizes), dtype=np.int64)
    for _ in range(workers - len(sizes)):
        sharing[np.argmax(sizes / sharing)] += 1  # more than 1 sample per worker, because samples >= workers
    firsts = np.cumsum(sharing) - sharing
    each = zip(firsts, sizes.tolist(), sharing.tolist(), strict=True)
    return np.concatenate([first + _even(size, share) for first, size, share in each])


def _dirichlet(sizes: Indices, workers: int, alpha: float, stream: np.random.RandomState) -> Indices:
    """Divide each class in proportions drawn from Dir(alpha).

    A worker without samples then gets one sample from the worker with the most samples.
    """
    shape = (len(sizes), workers)
    # Gamma(alpha) in logarithms, by Gamma(alpha) = Gamma(alpha + 1) U^(1 / alpha): a small alpha would otherwise
    # underflow to a row of zeros. random_sample() can be 0 but not 1, so 1 minus it has a finite logarithm.
    logs = alpha * np.log(stream.standard_gamma(alpha + 1, shape)) + np.log(1 - stream.random_sample(shape))
    ends = np.cumsum(np.exp((logs - logs.max(axis=1, keepdims=True)) / alpha), axis=1)
    # Rounding the cumulated proportions instead of each one keeps the total of every class.
    ends = np.rint(ends / ends[:, -1:] * sizes[:, np.newaxis]).astype(np.int64)
    counts = np.diff(ends, axis=1, prepend=0)
    for empty in np.flatnonzero(counts.sum(axis=0) == 0):
        largest = counts.sum(axis=0).argmax()
        moved_class = counts[:, largest].argmax()
        counts[moved_class, [largest, empty]] += (-1, 1)
    return np.repeat(np.tile(np.arange(workers), len(sizes)), counts.reshape(-1))


def save_partition(path: Path, validation: Indices, parts: Sequence[Indices]) -> None:
    """Write the validation samples and the samples of each worker; equal arguments give equal bytes.

    The arrays `worker-00000`, ..., `validation` (samples,) int64 are indices in the training split. All
    workers share a single part.
    """
    ids = (each.astype(np.int64) for each in (*parts, validation))
    with atomic_write(path) as part_file:
        write_shard(part_file, "npz", dict(zip(_names(len(parts)), ids, strict=True)))


def load_partition(path: Path) -> tuple[Indices, list[Indices]]:
    """Return (validation, parts) as saved. Raises UserError if the file is missing or damaged."""
    try:
        with ZipFile(path) as archive:
            members = archive.namelist()
            if members != [f"{name}.npy" for name in _names(len(members) - 1)]:
                raise ValueError("its arrays are not worker-00000, ..., validation")
            # np.load of the NPZ would not verify the checksums, as ZipFile.read does.
            *parts, validation = (
                np.load(io.BytesIO(archive.read(member)), allow_pickle=False) for member in members
            )
    # zipfile raises RuntimeError if a damaged flag makes a member look encrypted.
    except Exception as error:  # zipfile and numpy raise many types of exceptions for damaged files
        raise UserError(f"{path}: not the partition of a run ({error}); train the run again") from error
    return validation, parts


def check_cover(samples: int, validation: Indices, parts: Sequence[Indices]) -> None:
    """Raise ValueError unless each of the samples 0..samples-1 is in exactly one of validation and parts."""
    ids: Array = np.concatenate([validation, *parts])
    outside = (ids < 0) | (ids >= samples)
    wrong = [*ids[outside], *np.flatnonzero(np.bincount(ids[~outside], minlength=samples) != 1)]
    if wrong:
        raise ValueError(
            f"the partition has {plural(len(wrong), 'sample')} outside of 0..{samples - 1} or not in exactly one part, the first "
            f"is {wrong[0]}"
        )


def _names(parts: int) -> list[str]:
    """Return the names of the arrays; validation is last, so that a truncated ZIP directory is detected."""
    return [*(f"worker-{number:05d}" for number in range(parts)), "validation"]
