"""Record of one converted shard: a small JSON file per shard, so that shards can be made independently."""

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nnlo_lib.core.atomic_file import atomic_write
from nnlo_lib.data.readers import Array, SampleBlock
from nnlo_lib.data.store.manifest import ArraySpec, Shard, array_spec_from_json, file_sha256

SHARD_RECORDS_FOLDER = "shards"


@dataclass(frozen=True)
class ChannelMoments:
    """Sums over the samples of a shard for each channel (first axis) of an input.

    Attributes:
        count: number of values per channel.
        sums: sum of the values of each channel.
        squares: sum of the squared values of each channel.
    """

    count: int
    sums: tuple[float, ...]
    squares: tuple[float, ...]


@dataclass(frozen=True)
class ShardRecord:
    """One converted shard.

    Attributes:
        key: hash that identifies the files and settings of the conversion.
        split: name of the split.
        shard: entry of the shard in the manifest.
        inputs: input arrays, without mean and deviation.
        labels: label array.
        highest: highest label; None if the labels are not integers.
        moments: sums for each input.
        skipped: name and reason of each corrupt record that was left out.
    """

    key: str
    split: str
    shard: Shard
    inputs: tuple[ArraySpec, ...]
    labels: ArraySpec
    highest: int | None
    moments: tuple[ChannelMoments, ...]
    skipped: tuple[str, ...]

    @classmethod
    def from_block(
        cls, key: str, split: str, file: str, path: Path, block: SampleBlock, names: Sequence[str]
    ) -> "ShardRecord":
        """Return the record of a block that was written to `path`.

        Args:
            key: hash of the conversion.
            split: name of the split.
            file: path of the shard relative to the store.
            path: file that was written and is hashed; may have a temporary name.
            block: samples of the shard.
            names: names of the inputs, followed by the name of the labels.
        """
        *inputs, labels = (
            ArraySpec(name, array.shape[1:], array.dtype.name)
            for name, array in zip(names, (*block.inputs, block.labels), strict=True)
        )
        shard = Shard(file, len(block.labels), path.stat().st_size, file_sha256(path), len(block.skipped))
        highest = int(block.labels.max()) if block.labels.dtype.kind in "iu" else None
        moments = tuple(_moments(array) for array in block.inputs)
        return cls(key, split, shard, tuple(inputs), labels, highest, moments, block.skipped)

    @classmethod
    def load(cls, path: Path) -> "ShardRecord | None":
        """Return the record, or None if it is missing or damaged; the shard is then made again."""
        try:
            return cls(**_typed(json.loads(path.read_text())))
        except (OSError, ValueError, TypeError, KeyError):
            return None

    def save(self, path: Path) -> None:
        """Write the record atomically."""
        with atomic_write(path) as part:
            part.write_text(json.dumps(asdict(self)) + "\n")


def pooled(moments: Sequence[ChannelMoments]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return the mean and the standard deviation of each channel over several shards."""
    count = sum(each.count for each in moments)
    # fsum rounds once, so that the order of the shards does not change the result.
    means = [math.fsum(sums) / count for sums in zip(*(each.sums for each in moments), strict=True)]
    squares = [math.fsum(sums) / count for sums in zip(*(each.squares for each in moments), strict=True)]
    return tuple(means), tuple(
        # For constant channels, the difference can be slightly negative by rounding.
        math.sqrt(max(0.0, square - mean**2))
        for mean, square in zip(means, squares, strict=True)
    )


def _moments(array: Array) -> ChannelMoments:
    """Return the sums over all axes except the channel axis.

    Sums are taken sample by sample, which avoids a copy of the whole array in float64.
    """
    channels = array.shape[1] if array.ndim > 1 else 1
    sums, squares = np.zeros(channels), np.zeros(channels)
    # In float64: float32 or integer types would lose digits or overflow in the sum of squares.
    for sample in array.reshape(len(array), channels, -1):
        values = sample.astype(np.float64)
        sums += values.sum(axis=1)
        squares += np.einsum("cv,cv->c", values, values)
    return ChannelMoments(array.size // channels, tuple(sums.tolist()), tuple(squares.tolist()))


def _typed(fields: dict[str, Any]) -> dict[str, Any]:
    return {
        **fields,
        "shard": Shard(**fields["shard"]),
        "inputs": tuple(array_spec_from_json(each) for each in fields["inputs"]),
        "labels": array_spec_from_json(fields["labels"]),
        "skipped": tuple(fields["skipped"]),
        "moments": tuple(
            ChannelMoments(each["count"], tuple(each["sums"]), tuple(each["squares"]))
            for each in fields["moments"]
        ),
    }
