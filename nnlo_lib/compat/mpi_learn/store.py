"""Conversion of the user's samples to a store; generated batches are written to .npz files first."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from nnlo_lib.compat.mpi_learn.builders import Data, H5Data, Side
from nnlo_lib.config.data import DataConfig as DataBlock
from nnlo_lib.core.errors import UserError
from nnlo_lib.data.readers.base import Array
from nnlo_lib.train.task import prepare_dataset

MAX_FILE_BYTES = 1 << 26  # limit of the batches in memory for one .npz file
DATASET_NAME = "mpi_learn"


def make_store(
    data: Data, train_list: Sequence[str], val_list: Sequence[str], one_hot: bool, folder: Path
) -> DataBlock:
    """Write the store into `folder` and return the `data` section; `one_hot`: the labels are classes, also as integers."""
    folder.mkdir(parents=True, exist_ok=True)
    lists = {"train": list(train_list), "validation": list(val_list)}
    # Batches of an overridden method exist only in memory and are written to files; plain HDF5 files are
    # converted directly.
    methods = ("generate_data", "load_data")
    if isinstance(data, H5Data) and all(
        getattr(type(data), name) is getattr(H5Data, name) for name in methods
    ):
        keys: dict[str, Any] = {"features": data.features_name, "labels": data.labels_name}
    else:
        lists = {
            split: _write_generated(data, names, folder / f"generated-{split}")
            for split, names in lists.items()
        }
        if not lists["train"]:
            raise UserError(
                "MPIManager: generate_data() yields no batch for train_list; check train_list and generate_data()"
            )
        with np.load(lists["train"][0]) as arrays:
            keys = {"features": sorted(name for name in arrays if name != "labels"), "labels": "labels"}
    files = {split: [str(Path(name).absolute()) for name in names] for split, names in lists.items() if names}
    reader = {"name": "arrays", "one_hot": one_hot, **keys, **files}
    validation = "validation" if "validation" in files else 0.1
    block = DataBlock.model_validate(
        {"dataset": DATASET_NAME, "source": str(folder), "reader": reader, "validation": validation,
         "stage_to": data.cache if isinstance(data, H5Data) else None}
    )  # fmt: skip
    prepare_dataset(block, folder / "store")
    return block


def _write_generated(data: Data, names: Sequence[str], stem: Path) -> list[str]:
    """Generate one epoch, write its batches to .npz files and return their paths.

    `stem` is a path without number and suffix, whose name ends with the name of the split.
    """
    # Without validation files there is no validation split; without training files, generate_data may still
    # generate samples.
    if stem.name.endswith("validation") and not names:
        return []
    data.set_file_names(names)
    paths = []
    for number, piece in enumerate(_chunks(data)):
        paths.append(f"{stem}-{number:05d}.npz")
        joined = {name: np.concatenate([batch[name] for batch in piece]) for name in piece[0]}
        np.savez(paths[-1], **joined)  # type: ignore[arg-type]
    return paths


def _chunks(data: Data) -> Iterator[list[dict[str, Array]]]:
    piece: list[dict[str, Array]] = []
    for x, y in data.generate_data():
        piece.append(_named(x, y))
        if data.batch_size is None:
            data.batch_size = len(piece[0]["labels"])
        # An epoch may be larger than memory, so it is written in pieces.
        if sum(array.nbytes for batch in piece for array in batch.values()) > MAX_FILE_BYTES:
            yield piece
            piece = []
    if piece:
        yield piece


def _named(x: Side, y: Side) -> dict[str, Array]:
    """Name the arrays of a batch so that the network's inputs keep their order."""
    inputs, targets = ([side] if isinstance(side, np.ndarray) else list(side) for side in (x, y))
    if len(targets) != 1:
        raise UserError(
            f"generate_data() yields {len(targets)} arrays of labels, but nnlo supports only one; yield a single array y"
        )
    return {"labels": np.asarray(targets[0])} | {
        f"features{place:02d}": np.asarray(array) for place, array in enumerate(inputs)
    }
