"""Random orders that depend on nothing but their key."""

from enum import IntEnum

import numpy as np

from nnlo_lib.data.split import Indices


class Purpose(IntEnum):
    """What a random stream is for; each purpose has its own, whatever the others draw."""

    EPOCH = 1
    VALIDATION = 2


def shuffled(indices: Indices, seed: int, purpose: Purpose, epoch: int = 0) -> Indices:
    """Permute `indices` by the stream of (seed, purpose, epoch).

    Samples are sorted by raw 64-bit draws, which numpy promises never to change, unlike its shuffle.
    """
    stream = np.random.PCG64(np.random.SeedSequence([seed, purpose, epoch]))
    return indices[np.argsort(stream.random_raw(len(indices)), kind="stable")]
