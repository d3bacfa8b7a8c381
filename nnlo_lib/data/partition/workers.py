"""Which training samples belong to which worker, for studies of unequal data.

Three schemes. `by_class` is DiNNO's hetero (Yu et al. 2022, arXiv:2109.08665), but loses no class. `dirichlet` divides
every class in proportions p ~ Dir(alpha) over the workers (Yurochkin et al. 2019, arXiv:1905.12022); Hsu et al. 2019
(arXiv:1909.06335) draw the other way round, a mixture of classes for each worker. `sorted` cuts the samples sorted by
class into shards (McMahan et al. 2017, arXiv:1602.05629, who give two to each worker).

Draws come from numpy's RandomState, whose streams are frozen (NEP 19): a seed gives the same division
everywhere, up to rounding of log and exp.
"""

from typing import Protocol, runtime_checkable

import numpy as np

from nnlo_lib.core.errors import UserError
from nnlo_lib.data.readers import Array, Indices

PARTITION_STREAM = 0x776F726B  # "work": a stream apart from those of nnlo_lib.data.loading.shuffle


class PartitionScheme(Protocol):
    """What the experiment says: by_class, sorted or dirichlet."""

    @property
    def name(self) -> str:
        """Name of the scheme."""


@runtime_checkable
class Concentrated(Protocol):
    """A scheme with a concentration: dirichlet."""

    @property
    def alpha(self) -> float:
        """Concentration, above 0: large is even, small gives few classes each."""


def assign_to_workers(
    train: Indices, labels: Array | None, workers: int, scheme: PartitionScheme, seed: int
) -> list[Indices]:
    """Divide the samples `train` among workers: one ascending array each, no sample lost, no worker without one.

    `labels` (samples of the split,) are classes; `train` are places in them. Raises UserError if labels are no
    classes or there are fewer samples than workers.
    """
    classes = _classes(labels, scheme)[train]
    if len(train) < workers:
        raise UserError(
            f"data.partition {scheme.name}: {workers} workers but {len(train)} training samples; each needs at "
            f"least one: lower parallel.ranks, or use more samples (data.dataset, data.validation)"
        )
    stream = np.random.RandomState(np.random.MT19937(np.random.SeedSequence([seed, PARTITION_STREAM])))
    owners = _owners(np.unique(classes, return_counts=True)[1], workers, scheme, stream)
    order = np.arange(len(train)) if scheme.name == "sorted" else stream.permutation(len(train))
    order = order[np.argsort(classes[order], kind="stable")]
    return [np.sort(train[order[owners == worker]]) for worker in range(workers)]


def _classes(labels: Array | None, scheme: PartitionScheme) -> Array:
    if labels is None or labels.dtype.kind not in "iu" or labels.ndim != 1:
        raise UserError(
            f"data.partition {scheme.name} divides by class, but the labels of this data set are no classes; "
            f"use data.partition: {{name: iid}}"
        )
    return labels


def _owners(sizes: Indices, workers: int, scheme: PartitionScheme, stream: np.random.RandomState) -> Indices:
    """Return the worker of each sample, in order of class; `sizes` count the samples of the classes that occur."""
    if isinstance(scheme, Concentrated):
        return _dirichlet(sizes, workers, scheme.alpha, stream)
    if scheme.name == "sorted":
        return _even(int(sizes.sum()), workers)
    if scheme.name == "by_class":
        return _by_class(sizes, workers)
    raise ValueError(f"'{scheme.name}' gives workers no samples of their own")


def _even(things: int, workers: int) -> Indices:
    """Give each worker a contiguous run of things, in numbers that differ by at most one."""
    return np.arange(things) * workers // things


def _by_class(sizes: Indices, workers: int) -> Indices:
    """Give each worker whole classes, neighbours and equally many (+-1); with more workers than classes, one each.

    Then several workers share a class evenly: each further worker joins the class with most samples a worker.
    """
    if workers <= len(sizes):
        return np.repeat(_even(len(sizes), workers), sizes)
    sharing = np.ones(len(sizes), dtype=np.int64)
    for _ in range(workers - len(sizes)):
        sharing[np.argmax(sizes / sharing)] += 1  # has over 1 sample a worker, for samples >= workers
    firsts = np.cumsum(sharing) - sharing
    each = zip(firsts, sizes.tolist(), sharing.tolist(), strict=True)
    return np.concatenate([first + _even(size, share) for first, size, share in each])


def _dirichlet(sizes: Indices, workers: int, alpha: float, stream: np.random.RandomState) -> Indices:
    """Divide each class in proportions drawn from Dir(alpha); a worker left without gets a sample of the largest."""
    ends = np.cumsum(_gammas((len(sizes), workers), alpha, stream), axis=1)
    ends = np.rint(ends / ends[:, -1:] * sizes[:, np.newaxis]).astype(np.int64)
    counts = np.diff(ends, axis=1, prepend=0)
    for poor in np.flatnonzero(counts.sum(axis=0) == 0):
        rich = counts.sum(axis=0).argmax()
        given = counts[:, rich].argmax()
        counts[given, [rich, poor]] += (-1, 1)
    return np.repeat(np.tile(np.arange(workers), len(sizes)), counts.reshape(-1))


def _gammas(shape: tuple[int, int], alpha: float, stream: np.random.RandomState) -> Array:
    """Draw Gamma(alpha), each row divided by its largest.

    In logarithms, by Gamma(alpha) = Gamma(alpha + 1) U^(1 / alpha): else a small alpha underflows to a row of zeros.
    """
    logs = alpha * np.log(stream.standard_gamma(alpha + 1, shape)) + np.log(1 - stream.random_sample(shape))
    drawn: Array = np.exp((logs - logs.max(axis=1, keepdims=True)) / alpha)
    return drawn
