"""Manifest of a run's data before the conversion: from the store, the catalog, or headers of the source files."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from nnlo_lib.config import Run
from nnlo_lib.config.data import DataConfig
from nnlo_lib.config.paths import store_of
from nnlo_lib.config.reader import ArraysReaderConfig, LidarReaderConfig, SyntheticReaderConfig
from nnlo_lib.core.errors import UserError
from nnlo_lib.data.catalog import CATALOG
from nnlo_lib.data.identity.source_identity import read_contents
from nnlo_lib.data.readers import Array
from nnlo_lib.data.store.manifest import ArraySpec, DataManifest, SplitInfo

SAMPLES = 16  # read to find the shape of the samples, for example after an adaptor


def expected_manifest(run: Run) -> DataManifest | None:
    """Return the manifest of a run's data; None if the shape of the samples is unknown before the conversion.

    Raises UserError if the store or the source files are damaged.
    """
    path = store_of(run, leads=True).manifest
    if path.exists():
        return DataManifest.load(path)
    return manifest_from_catalog(run.data, path) or _manifest_from_arrays(run.data, path)


def manifest_from_catalog(data: DataConfig, path: Path) -> DataManifest | None:
    """Return a future store's manifest from the catalog, or None if the catalog does not give a shape."""
    known = CATALOG.get(data.dataset)
    if known and known.generated:
        return _manifest_of_generated(data, path)
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


def _manifest_of_generated(data: DataConfig, path: Path) -> DataManifest:
    contents = read_contents(data.store_settings, path.parent)
    if data.dataset == "lidar":
        lidar = data.reader if isinstance(data.reader, LidarReaderConfig) else LidarReaderConfig()
        return DataManifest(
            path.parent, data.dataset, data.format, (_column("points", np.empty((0, 2), np.float32)),),
            ArraySpec("occupied", (), "float32"), None, 0, (), 1.0, {},
            {"train": SplitInfo(lidar.robots * lidar.scans * lidar.beams * lidar.points, ())},
        )  # fmt: skip
    reader = data.reader if isinstance(data.reader, SyntheticReaderConfig) else SyntheticReaderConfig()
    return DataManifest(
        path.parent, data.dataset, data.format, (_column("features", np.empty((0, *reader.shape), np.uint8)),),
        ArraySpec("labels", (), "int64"), contents.classes, 0, contents.class_names, 1 / 255, {},
        {"train": SplitInfo(reader.samples, ())},
    )  # fmt: skip


def _manifest_from_arrays(data: DataConfig, path: Path) -> DataManifest | None:
    """Return a future store's manifest from the user's array files, or None for sources of other kinds."""
    folder, settings = Path(data.source or "").expanduser(), data.store_settings
    if not isinstance(data.reader, ArraysReaderConfig) or not folder.is_dir():
        return None
    contents = read_contents(settings, folder)
    samples = sum(part.samples for unit in contents.units if unit.split == "train" for part in unit.parts)
    # A few samples show the shape, also after an adaptor.
    first = read_contents(replace(settings, shard_size=SAMPLES), folder).units[0].read()
    return DataManifest(
        path.parent, data.dataset, data.format, tuple(map(_column, contents.inputs, first.inputs)),
        ArraySpec(contents.labels, first.labels.shape[1:], first.labels.dtype.name),
        contents.classes, contents.first_class, contents.class_names,
        1 / 255 if first.inputs[0].dtype == np.uint8 else 1.0, {}, {"train": SplitInfo(samples, ())},
    )  # fmt: skip


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
