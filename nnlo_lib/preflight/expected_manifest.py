"""Manifest of a run's data before the conversion: from the store, the catalog, or headers of the source files."""

from dataclasses import replace
from math import prod
from pathlib import Path

import numpy as np

from nnlo_lib.config import Run
from nnlo_lib.config.data import DataConfig
from nnlo_lib.config.paths import manifest_of
from nnlo_lib.config.reader import ArraysReaderConfig
from nnlo_lib.core.errors import UserError
from nnlo_lib.data.catalog import CATALOG
from nnlo_lib.data.readers import Array
from nnlo_lib.data.readers.array_block import FileSlice, read_block, read_labels
from nnlo_lib.data.readers.array_source import open_source
from nnlo_lib.data.readers.file_list import resolve_files
from nnlo_lib.data.readers.nnlo_module import is_nnlo_module, reader_options_of_module
from nnlo_lib.data.store.manifest import ArraySpec, DataManifest, SplitInfo

SAMPLES = 16  # read to find the shape of the samples, for example after an adaptor
MAX_LABEL_BYTES = 1 << 26  # labels that are read to find the number of classes


def expected_manifest(run: Run) -> DataManifest | None:
    """Return the manifest of a run's data; None if the shape of the samples is unknown before the conversion.

    Raises UserError if the store or the source files are damaged.
    """
    path = Path(manifest_of(run))
    if path.exists():
        return DataManifest.load(path)
    return manifest_from_catalog(run.data, path) or _manifest_from_arrays(run.data, path)


def manifest_from_catalog(data: DataConfig, path: Path) -> DataManifest | None:
    """Return a future store's manifest from the catalog, or None if the catalog does not give a shape."""
    known = CATALOG.get(data.dataset)
    side = getattr(data.reader, "size", data.crop)
    shape = (known.shape if known else None) or ((3, side, side) if side else None)
    if known is None or shape is None:
        return None
    numbers = known.classes is None
    splits = {"train": SplitInfo(known.train_samples, ())} if known.train_samples else {}
    labels = ArraySpec("labels", (), "float32" if numbers else "int64")
    return DataManifest(
        path.parent, data.dataset, data.format, (_column("inputs", np.empty((0, *shape), "float32" if numbers else "uint8")),),
        labels, known.classes, 0, (), known.scale, {}, splits,
    )  # fmt: skip


def _manifest_from_arrays(data: DataConfig, path: Path) -> DataManifest | None:
    """Return a future store's manifest from the user's array files, or None for sources of other kinds."""
    folder, reader = Path(data.source or "").expanduser(), data.reader
    if not isinstance(reader, ArraysReaderConfig) or not folder.is_dir():
        return None
    if is_nnlo_module(reader.train):
        reader = reader.model_copy(update=reader_options_of_module(str(reader.train)))
    slices = _training_slices(folder, reader)
    first = slices[0]
    if sum(each.labels.dtype.itemsize * prod(each.labels.shape) for each in slices) > MAX_LABEL_BYTES:
        return None
    block = read_block(
        [replace(first, end=min(first.end, SAMPLES))], reader.one_hot, reader.adaptor, reader.channels
    )
    labels = read_labels(slices, reader.one_hot)
    names = (array.name for array in first.inputs)
    return DataManifest(
        path.parent, data.dataset, data.format,
        tuple(_column(*each) for each in zip(names, block.inputs, strict=True)),
        ArraySpec(first.labels.name, labels.shape[1:], labels.dtype.name),
        int(labels.max()) + 1 if labels.dtype == np.int64 and labels.ndim == 1 else None, 0, (),
        1 / 255 if block.inputs[0].dtype == np.uint8 else 1.0, {}, {"train": SplitInfo(len(labels), ())},
    )  # fmt: skip


def _training_slices(folder: Path, reader: ArraysReaderConfig) -> list[FileSlice]:
    """Return the slices of all samples of the training files; only headers are read."""
    keys = (reader.features,) if isinstance(reader.features, str) else reader.features
    sources = [open_source(paths, keys, reader.labels) for paths in resolve_files(folder, reader.train)]
    return [FileSlice(source.inputs, source.labels, 0, source.samples) for source in sources]


def _column(name: str, samples: Array) -> ArraySpec:
    shape = samples.shape[1:]
    channels = shape[0] if shape else 1
    # Mean 0 and deviation 1: the statistics are unknown before the conversion, and no layer depends on them.
    return ArraySpec(name, shape, samples.dtype.name, (0.0,) * channels, (1.0,) * channels)


def unknown_shape_error(data: DataConfig, path: Path) -> UserError:
    """Return the error of a command that needs the shape of the samples, with the command that converts them."""
    return UserError(
        f"data.dataset: the sample shape of {data.dataset} is unknown before the conversion; convert the data set "
        f"with `snakemake {path} --profile profiles/local --configfile FILE`"
    )
