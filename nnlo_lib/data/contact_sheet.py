"""Pictures of a data set: a contact sheet of the images of each class, and a map of points with their mean labels."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from nnlo_lib.core.atomic_file import atomic_write
from nnlo_lib.core.errors import UserError
from nnlo_lib.data.readers.base import Array, Indices
from nnlo_lib.data.store.manifest import DataManifest
from nnlo_lib.data.store.split import Split

if TYPE_CHECKING:
    from PIL.Image import Image

USUAL, SMALLEST, LARGEST = 96, 64, 128  # sides of a tile in pixels
MARGIN, GAP = 16, 8
TEXT, TITLE = 13, 17  # font sizes in pixels
INK, PAPER = "#333333", "#ffffff"
SIDE = 640  # pixels of the longer side
UNSEEN, LOW, HIGH = (255, 255, 255), (198, 219, 239), (8, 48, 107)
WAY = (207, 91, 34)


def contact_sheet(manifest: DataManifest, split: str, path: Path, columns: int = 10, rows: int = 10) -> None:
    """Write a PNG with up to columns * rows images of a split.

    Each class gets the same number of tiles. The choice of images depends on the data alone. If there are
    more classes than tiles, classes are left out at even intervals. Bytes are multiplied by the data set's
    `scale` to 0..1; other numbers are scaled linearly from the minimum to the maximum on the sheet.

    Raises UserError if the samples are not images.
    """
    number = image_input(manifest)
    if number is None:
        shapes = ", ".join(f"{column.name} {column.shape}" for column in manifest.inputs)
        raise UserError(
            f"{manifest.dataset}: cannot draw a contact sheet, because no input has the shape of images (1 or 3, height, "
            f"width); the inputs are {shapes}"
        )
    samples = Split(manifest, split)
    chosen, places = _choose(samples.labels, manifest.classes, columns, rows)
    inputs, labels = samples.take(chosen)
    names = manifest.class_labels
    captions = [
        f"sample {number}" if manifest.classes is None else " ".join(names[label].split())
        for number, label in zip(chosen, labels, strict=True)
    ]
    tiles = list(map(_tile, _bytes(inputs[number], manifest.scale), captions))
    title = f"{manifest.dataset}, {split}: {len(chosen):,} of {len(samples):,} samples"
    with atomic_write(path) as part:
        _sheet(title, tiles, places, columns).save(part, format="PNG")


def image_input(manifest: DataManifest) -> int | None:
    """Return the index of the first input of images, (1 or 3, height, width); None if no input has images."""
    for number, column in enumerate(manifest.inputs):
        if len(column.shape) == 3 and column.shape[0] in (1, 3) and 0 not in column.shape:
            return number
    return None


def _choose(labels: Array, classes: int | None, columns: int, rows: int) -> tuple[Indices, Indices]:
    """Return samples and their tile numbers, row by row: each class gets whole rows, or an equal part of a row."""
    groups = [np.arange(len(labels))]
    if classes is not None:
        order = np.argsort(labels, kind="stable")
        groups = np.split(order, np.flatnonzero(np.diff(labels[order])) + 1)
    groups = [groups[index] for index in _spread(len(groups), columns * rows)]
    most = columns * rows // len(groups)
    each = next(count for count in range(most, 0, -1) if count % columns == 0 or columns % count == 0)
    chosen = [group[_spread(len(group), each)] for group in groups]
    places = [number * each + np.arange(len(group)) for number, group in enumerate(chosen)]
    return np.concatenate(chosen), np.concatenate(places)


def _spread(total: int, wanted: int) -> Indices:
    """Return up to `wanted` evenly spaced numbers of 0..total-1."""
    count = min(total, wanted)
    return np.arange(count) * total // count


def _bytes(images: Array, scale: float) -> Array:
    """Return stored values as bytes 0..255."""
    values = images.astype(np.float64)
    if images.dtype == np.uint8:
        values *= scale
    else:
        values = np.nan_to_num(values, nan=0.0, posinf=0.0, neginf=0.0)
        # Constant images have the range 0.
        values = (values - values.min()) / (np.ptp(values) or 1.0)
    return np.rint(255 * values.clip(0, 1)).astype(np.uint8)  # type: ignore[no-any-return]


def _tile(image: Array, caption: str) -> "Image":
    """Return bytes (1 or 3, height, width) as a picture of a visible size above its caption, which is cut at the sides."""
    from PIL import Image, ImageDraw, ImageFont

    picture = Image.fromarray(image[0] if len(image) == 1 else image.transpose(1, 2, 0)).convert("RGB")
    picture.thumbnail((LARGEST, LARGEST))
    times = max(1, round(USUAL / max(picture.size)))
    # Without interpolation, the pixels of small images remain visible.
    picture = picture.resize((picture.width * times, picture.height * times), Image.Resampling.NEAREST)
    width = max(SMALLEST, picture.width)
    tile = Image.new("RGB", (width, picture.height + TEXT + GAP), PAPER)
    tile.paste(picture, ((width - picture.width) // 2, 0))
    draw, font = ImageDraw.Draw(tile), ImageFont.load_default(TEXT)
    left = max(0, (width - round(draw.textlength(caption, font=font))) // 2)
    draw.text((left, picture.height + TEXT + 1), caption, fill=INK, font=font, anchor="ls")
    return tile


def _sheet(title: str, tiles: Sequence["Image"], places: Indices, columns: int) -> "Image":
    """Return the title above the tiles, of one size, at their places row by row from 0."""
    from PIL import Image, ImageDraw, ImageFont

    width, height = tiles[0].width + GAP, tiles[0].height + GAP
    top, rows = MARGIN + TITLE + GAP, int(places.max()) // columns + 1
    sheet = Image.new("RGB", (2 * MARGIN - GAP + columns * width, top + rows * height + MARGIN - GAP), PAPER)
    font = ImageFont.load_default(TITLE)
    ImageDraw.Draw(sheet).text((MARGIN, MARGIN), title, fill=INK, font=font, anchor="lt")
    for tile, place in zip(tiles, places.tolist(), strict=True):
        row, column = divmod(place, columns)
        sheet.paste(tile, (MARGIN + column * width, top + row * height))
    return sheet


def has_points(manifest: DataManifest) -> bool:
    """Return True if the samples are points in a plane with one number as the label."""
    one = [column.shape for column in manifest.inputs] == [(2,)]
    return one and manifest.classes is None and manifest.labels.shape in ((), (1,))


def point_map(manifest: DataManifest, split: str, path: Path, ways: Sequence[Array] = ()) -> None:
    """Write a PNG in which each pixel has the color of the mean label of its samples; white pixels have none.

    `ways` are drawn above: places (places, 2) in the coordinates of the samples, with the number of the robot where each begins.
    """
    from PIL import Image, ImageDraw

    samples = Split(manifest, split)
    (points,), labels = samples.take(np.arange(len(samples)))
    low, high = points.min(0), points.max(0)
    extent = max(*(high - low), 1e-12)
    places = np.rint((points - low) / extent * (SIDE - 1)).astype(np.int64)
    width, height = places.max(0) + 1
    flat = places[:, 1] * width + places[:, 0]
    counts = np.bincount(flat, minlength=width * height)
    sums = np.bincount(flat, np.asarray(labels, np.float64).reshape(-1), width * height)
    share = np.clip(sums / np.maximum(counts, 1), 0, 1)[:, None]
    colors = np.where(counts[:, None] > 0, (1 - share) * LOW + share * HIGH, UNSEEN)
    picture = Image.fromarray(colors.reshape(height, width, 3).astype(np.uint8))
    draw = ImageDraw.Draw(picture)
    for robot, way in enumerate(ways):
        pixels = (way - low) / extent * (SIDE - 1)
        draw.line(pixels.reshape(-1).tolist(), fill=WAY, width=2)
        draw.text(tuple(pixels[0] + 3), str(robot), fill=WAY, font_size=TITLE)
    with atomic_write(path) as part:
        picture.save(part, format="PNG")
