"""Map of a data set of points in a plane: where samples are, and the mean of their labels there."""

from pathlib import Path

import numpy as np

from nnlo_lib.core.atomic_file import atomic_write
from nnlo_lib.data.store.manifest import DataManifest
from nnlo_lib.data.store.split import Split

SIDE = 640  # pixels of the longer side
UNSEEN, LOW, HIGH = (255, 255, 255), (198, 219, 239), (8, 48, 107)


def has_points(manifest: DataManifest) -> bool:
    """Return True if the samples are points in a plane with one number as the label."""
    one = [column.shape for column in manifest.inputs] == [(2,)]
    return one and manifest.classes is None and manifest.labels.shape in ((), (1,))


def point_map(manifest: DataManifest, split: str, path: Path) -> None:
    """Write a PNG in which each pixel has the color of the mean label of its samples; white pixels have none.

    Args:
        manifest: the data set.
        split: name of the split.
        path: PNG file to write.
    """
    from PIL import Image

    samples = Split(manifest, split)
    (points,), labels = samples.take(np.arange(len(samples)))
    low, high = points.min(0), points.max(0)
    places = np.rint((points - low) / max(*(high - low), 1e-12) * (SIDE - 1)).astype(np.int64)
    width, height = places.max(0) + 1
    flat = places[:, 1] * width + places[:, 0]
    counts = np.bincount(flat, minlength=width * height)
    sums = np.bincount(flat, np.asarray(labels, np.float64).reshape(-1), width * height)
    share = np.clip(sums / np.maximum(counts, 1), 0, 1)[:, None]
    colors = np.where(counts[:, None] > 0, (1 - share) * LOW + share * HIGH, UNSEEN)
    with atomic_write(path) as part:
        Image.fromarray(colors.reshape(height, width, 3).astype(np.uint8)).save(part, format="PNG")
