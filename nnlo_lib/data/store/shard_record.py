"""Record of one converted shard: a small JSON file per shard, so that shards can be made independently."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from nnlo_lib.core.atomic_file import atomic_write
from nnlo_lib.core.json_text import load_json
from nnlo_lib.data.identity.file_checksum import file_sha256
from nnlo_lib.data.readers import SampleBlock
from nnlo_lib.data.store.channel_moments import ChannelMoments
from nnlo_lib.data.store.manifest import ArraySpec, Shard
from nnlo_lib.data.store.manifest_check import parse_json
from nnlo_lib.data.store.non_finite import count_non_finite

SHARD_RECORDS_FOLDER = "shards"


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
        moments: mean and squared deviations for each input.
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
        moments = tuple(ChannelMoments.of(array) for array in block.inputs)
        finite = sum(sum(each.counts) for each in moments)
        non_finite = sum(array.size for array in block.inputs) - finite + count_non_finite(block.labels)
        shard = Shard(
            file, len(block.labels), path.stat().st_size, file_sha256(path), len(block.skipped), non_finite
        )
        highest = int(block.labels.max()) if block.labels.dtype.kind in "iu" else None
        return cls(key, split, shard, tuple(inputs), labels, highest, moments, block.skipped)

    @classmethod
    def load(cls, path: Path) -> "ShardRecord | None":
        """Return the record, or None if it is missing or damaged; the shard is then made again."""
        try:
            return parse_json(cls, load_json(path.read_text()))
        except (OSError, ValueError, TypeError, RecursionError):
            return None

    def save(self, path: Path) -> None:
        """Write the record atomically."""
        with atomic_write(path) as part:
            part.write_text(json.dumps(asdict(self)) + "\n")
