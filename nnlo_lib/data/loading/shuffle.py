"""Random orders that depend on nothing but their key."""

from enum import IntEnum

import numpy as np

from nnlo_lib.data.readers import Indices


class ShufflePurpose(IntEnum):
    """What a random stream is for; each purpose has its own, whatever the others draw."""

    EPOCH = 1
    VALIDATION = 2
    AUGMENT = 3
    PROCESSES = 4


def shuffled(indices: Indices, seed: int, purpose: ShufflePurpose, *coordinates: int) -> Indices:
    """Permute `indices` by the stream of (seed, purpose, coordinates), like epoch and worker.

    Samples are sorted by raw 64-bit draws, which numpy promises never to change, unlike its shuffle.
    """
    stream = np.random.PCG64(np.random.SeedSequence([seed, purpose, *(coordinates or (0,))]))
    return indices[np.argsort(stream.random_raw(len(indices)), kind="stable")]
