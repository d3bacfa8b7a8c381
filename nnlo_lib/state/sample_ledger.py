"""Which samples an epoch used, and how often: what proves that none was missed and none used twice."""

import hashlib
from typing import Any

import numpy as np

from nnlo_lib.data.readers import Array, Indices

MAX_COUNT = 255  # a count goes no further
MAX_EXAMPLES = 10


class SampleLedger:
    """How often one rank learned from each of `samples` samples in the running epoch.

    `counts` (samples,) uint8 stays one array, and belongs to the rank's checkpoint: what a restart loses is not counted.
    """

    def __init__(self, samples: int) -> None:
        self.counts = np.zeros(samples, np.uint8)

    def mark(self, ids: Indices) -> None:
        """Count one use of each of `ids`, which are all different."""
        self.counts[ids] += self.counts[ids] < MAX_COUNT

    def restore(self, *counts: Array) -> None:
        """Go on from the counts of this rank, or from the sum of those of several ranks that it stands in for."""
        self.counts[:] = np.minimum(np.sum(counts, axis=0, dtype=np.int64), MAX_COUNT)

    def clear(self) -> None:
        """Begin an epoch."""
        self.counts[:] = 0


def epoch_row(epoch: int, counts: Array, expected: Array) -> dict[str, Any]:
    """Return the line of an epoch: `counts` are the uses by all ranks, `expected` those that there should be."""
    difference = counts.astype(np.int64) - expected.astype(np.int64)
    return {
        "epoch": epoch,
        "samples": int(counts.sum(dtype=np.int64)),
        "missed": int(np.sum(difference < 0)),
        "repeated": int(np.sum(difference > 0)),
        "examples": np.flatnonzero(difference)[:MAX_EXAMPLES].tolist(),
        "sha256": counts_sha256(counts),
    }


def counts_sha256(counts: Array) -> str:
    """Return the SHA-256 of counts, whatever numbers they are kept in."""
    return hashlib.sha256(counts.astype("<u4").tobytes()).hexdigest()
