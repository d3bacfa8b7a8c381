"""What the conversion of one shard leaves behind: a small JSON file, so that shards can be made independently."""

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
    """Sums over the samples of a shard for each channel (first axis) of an input: values, squares, how many."""

    count: int
    sums: tuple[float, ...]
    squares: tuple[float, ...]


@dataclass(frozen=True)
class ShardRecord:
    """One converted shard. `key` tells which conversion made it; `highest` is None where labels are no classes.

    `skipped` names the corrupt records that were left out, with the reason.
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
        """Describe the block that was written to `path`; `names` are those of its inputs and of its labels."""
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
        """Read a record; None if there is none or it is damaged, for then the shard is made again."""
        try:
            return cls(**_typed(json.loads(path.read_text())))
        except (OSError, ValueError, TypeError, KeyError):
            return None

    def save(self, path: Path) -> None:
        """Write the record, whole or not at all."""
        with atomic_write(path) as part:
            part.write_text(json.dumps(asdict(self)) + "\n")


def pooled(moments: Sequence[ChannelMoments]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return the mean and standard deviation of each channel over several shards."""
    count = sum(each.count for each in moments)
    means = [math.fsum(sums) / count for sums in zip(*(each.sums for each in moments), strict=True)]
    squares = [math.fsum(sums) / count for sums in zip(*(each.squares for each in moments), strict=True)]
    return tuple(means), tuple(
        math.sqrt(max(0.0, square - mean**2)) for mean, square in zip(means, squares, strict=True)
    )


def _moments(array: Array) -> ChannelMoments:
    """Sum over all axes but the channel's, sample by sample: no copy of the array in float64."""
    channels = array.shape[1] if array.ndim > 1 else 1
    sums, squares = np.zeros(channels), np.zeros(channels)
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
