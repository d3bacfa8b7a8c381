"""Random permutations that depend only on their key."""

from enum import IntEnum

import numpy as np

from nnlo_lib.data.readers import Indices


class ShufflePurpose(IntEnum):
    """Purpose of a random stream; streams of different purposes are independent."""

    # The numbers are part of the keys of the streams: another number changes the results of every run.
    EPOCH = 1
    VALIDATION = 2
    AUGMENT = 3
    PROCESSES = 4


def shuffled(indices: Indices, seed: int, purpose: ShufflePurpose, *coordinates: int) -> Indices:
    """Return `indices` permuted by the random stream of (seed, purpose, coordinates).

    The samples are sorted by raw 64-bit draws: numpy guarantees that these never change, but does not
    guarantee this for its shuffle.

    Args:
        indices: the samples, (samples,).
        seed: seed of the run.
        purpose: purpose of the random stream.
        coordinates: further parts of the key, for example epoch and worker.
    """
    stream = np.random.PCG64(np.random.SeedSequence([seed, purpose, *(coordinates or (0,))]))
    # Stable, so that even equal draws are sorted in the same way by every version of numpy.
    return indices[np.argsort(stream.random_raw(len(indices)), kind="stable")]
