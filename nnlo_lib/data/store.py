"""The common store: any data set as shards of one layout, with a manifest."""

import re
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from nnlo_lib.data.atomic import replacing
from nnlo_lib.data.catalog import Dataset
from nnlo_lib.data.manifest import MANIFEST, Manifest, Part, Shard, sha256
from nnlo_lib.data.readers import Piece, Samples, read
from nnlo_lib.data.shard import SUFFIXES, Format, write_shard
from nnlo_lib.errors import UserError

SHARD_NAME = re.compile(r"\.?[a-z]+-\d{5}-of-\d{5}\.(h5|npz)(\..+\.part)?")


def convert(dataset: Dataset, raw: Path, target: Path, format: Format, shard_size: int) -> Manifest:
    """Write the original files in `raw` as shards of up to `shard_size` samples and a manifest in `target`.

    One shard at a time is in memory. Raises UserError on bad files, and then `target` is as it was.
    """
    if shard_size < 1:
        raise UserError(f"data.shard_size {shard_size}: a shard holds at least one sample")
    splits = read(dataset.reader, raw)
    with ExitStack() as unpublished:
        writer = _Writer(dataset, target, format, shard_size, unpublished)
        parts = {split: writer.write(split, samples) for split, samples in splits.items()}
        (target / MANIFEST).unlink(missing_ok=True)
    manifest = Manifest(
        folder=target,
        dataset=dataset.name,
        format=format,
        shape=dataset.shape,
        dtype="uint8",
        classes=dataset.classes,
        scale=dataset.scale,
        shard_size=shard_size,
        splits=parts,
    )
    _sweep(manifest)
    manifest.save()
    return manifest


@dataclass(frozen=True)
class _Writer:
    """Write shards under temporary names; they get their own when `unpublished` closes without an error."""

    dataset: Dataset
    target: Path
    format: Format
    shard_size: int
    unpublished: ExitStack

    def write(self, split: str, samples: Samples) -> Part:
        if samples.count == 0:
            raise UserError(
                f"{samples.origin} holds no {split} sample; get the files of {self.dataset.name} again"
            )
        count = -(-samples.count // self.shard_size)
        shards = []
        for index, (features, labels) in enumerate(_checked(self.dataset, split, samples, self.shard_size)):
            name = f"{split}-{index:05d}-of-{count:05d}{SUFFIXES[self.format]}"
            part = self.unpublished.enter_context(replacing(self.target / name))
            write_shard(part, self.format, features, labels)
            shards.append(Shard(name, len(labels), part.stat().st_size, sha256(part)))
        return Part(samples.count, tuple(shards))


def _checked(dataset: Dataset, split: str, samples: Samples, size: int) -> Iterator[Piece]:
    """Pass the pieces on; raise UserError if the shape or a label is not what the catalog says."""
    start = 0
    for features, labels in samples.pieces(size):
        if features.shape[1:] != dataset.shape:
            raise UserError(
                f"{samples.origin.parent}: the {split} images are {features.shape[1:]}, but those of "
                f"{dataset.name} are {dataset.shape}; are these the files of another data set?"
            )
        for wrong in np.flatnonzero((labels < 0) | (labels >= dataset.classes))[:1]:
            raise UserError(
                f"{samples.origin}: sample {start + wrong} of the {split} set has label {labels[wrong]}, but "
                f"the classes of {dataset.name} are 0..{dataset.classes - 1}; mend the file or get it again"
            )
        start += len(labels)
        yield features, labels


def _sweep(manifest: Manifest) -> None:
    """Remove the shards, finished or not, that an earlier conversion left and this one did not write."""
    ours = {shard.file for part in manifest.splits.values() for shard in part.shards}
    for path in manifest.folder.iterdir():
        if SHARD_NAME.fullmatch(path.name) and path.name not in ours:
            path.unlink()
