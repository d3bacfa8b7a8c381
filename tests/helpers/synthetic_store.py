"""Stores written shard by shard, for tests that must not depend on the conversion."""

from pathlib import Path

import numpy as np

from nnlo_lib.core.atomic_file import file_sha256
from nnlo_lib.data.store.manifest import ArraySpec, DataManifest, Shard, SplitInfo
from nnlo_lib.data.store.shard import write_shard


def handmade(folder: Path, splits, shard=100, skipped=None, **fields) -> DataManifest:
    """Write a store; return its manifest; `splits`: features or list of inputs, and labels, by name."""
    folder.mkdir(parents=True, exist_ok=True)
    inputs, labels = splits["train"]
    names = ["features"] if isinstance(inputs, np.ndarray) else [f"input{n}" for n in range(len(inputs))]
    manifest = DataManifest(
        **{
            "folder": folder,
            "dataset": "digits",
            "format": "npz",
            "inputs": tuple(
                ArraySpec(name, array.shape[1:], array.dtype.name)
                for name, array in zip(names, _several(inputs), strict=True)
            ),
            "labels": ArraySpec("labels", labels.shape[1:], labels.dtype.name),
            "classes": None if labels.dtype.kind == "f" else int(labels.max()) + 1,
            "first_class": 0,
            "class_names": (),
            "scale": 1 / 255,
            "settings": {"reader": {}, "shard_size": shard},
            "splits": {
                split: SplitInfo(
                    len(each[1]), tuple(_shards(folder, split, names, *each, shard, skipped or {}))
                )
                for split, each in splits.items()
            },
            **fields,
        }
    )
    manifest.save()
    return manifest


def _several(inputs):
    return [inputs] if isinstance(inputs, np.ndarray) else inputs


def _shards(folder, split, names, inputs, labels, size, skipped):
    count = -(-len(labels) // size)
    for number in range(count):
        path = folder / f"{split}-{number:05d}-of-{count:05d}.npz"
        rows = slice(number * size, (number + 1) * size)
        arrays = {name: array[rows] for name, array in zip(names, _several(inputs), strict=True)}
        write_shard(path, "npz", arrays | {"labels": labels[rows]})
        samples = len(labels[rows])
        yield Shard(path.name, samples, path.stat().st_size, file_sha256(path), skipped.get(path.name, 0))
