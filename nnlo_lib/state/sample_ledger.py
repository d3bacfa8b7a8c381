"""Counts of the uses of each sample in an epoch, to prove that every sample was used exactly once."""

import hashlib
from typing import Any

import numpy as np

from nnlo_lib.data.readers import Array, Indices

MAX_COUNT = 255  # counts saturate at the largest uint8
MAX_EXAMPLES = 10  # samples that a row lists


class SampleLedger:
    """Number of times that one rank used each of `samples` samples in the current epoch.

    `counts` (samples,) uint8 is always the same array. It is saved in the rank's checkpoint, so that uses in
    steps that a restart loses are not counted.
    """

    def __init__(self, samples: int) -> None:
        self.counts = np.zeros(samples, np.uint8)

    def mark(self, ids: Indices) -> None:
        """Count one use of each of `ids`, which must be distinct."""
        # An overflow of uint8 to 0 would hide that a sample was used too often.
        self.counts[ids] += self.counts[ids] < MAX_COUNT

    def restore(self, *counts: Array) -> None:
        """Resume from the counts of this rank, or from the sum of counts of the ranks that it replaces."""
        # The sum of several ranks may exceed the range of uint8.
        self.counts[:] = np.minimum(np.sum(counts, axis=0, dtype=np.int64), MAX_COUNT)

    def clear(self) -> None:
        """Set all counts to zero at the start of an epoch."""
        self.counts[:] = 0


def epoch_row(epoch: int, counts: Array, expected: Array) -> dict[str, Any]:
    """Return the ledger row of an epoch.

    Args:
        epoch: number of the epoch, from 1.
        counts: (samples,) uses of each sample by all ranks.
        expected: (samples,) required uses of each sample.
    """
    # Differences of unsigned counts would wrap around.
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
    """Return the SHA-256 of counts, independent of their integer type."""
    return hashlib.sha256(counts.astype("<u4").tobytes()).hexdigest()
