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
    from PIL.ImageDraw import ImageDraw

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
    chosen, places = _choose(_groups(samples.labels, manifest.classes), columns, rows)
    inputs, labels = samples.take(chosen)
    images = [_tile(image) for image in _bytes(inputs[number], manifest.scale)]
    title = f"{manifest.dataset}, {split}: {len(chosen):,} of {len(samples):,} samples"
    sheet = _sheet(title, images, _captions(manifest, chosen, labels), places, columns)
    with atomic_write(path) as part:
        sheet.save(part, format="PNG")


def image_input(manifest: DataManifest) -> int | None:
    """Return the index of the first input of images, (1 or 3, height, width); None if no input has images."""
    for number, column in enumerate(manifest.inputs):
        if len(column.shape) == 3 and column.shape[0] in (1, 3) and 0 not in column.shape:
            return number
    return None


def _groups(labels: Array, classes: int | None) -> list[Indices]:
    """Return the samples of each class that occurs, or all samples in one group if there are no classes."""
    if classes is None:
        return [np.arange(len(labels))]
    order = np.argsort(labels, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(labels[order])) + 1)


def _choose(groups: Sequence[Indices], columns: int, rows: int) -> tuple[Indices, Indices]:
    """Return samples and their tile numbers, row by row.

    Each class, one of the `groups`, gets the tiles of whole rows, or of an equal part of a row.
    """
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


def _captions(manifest: DataManifest, chosen: Indices, labels: Array) -> list[str]:
    if manifest.classes is None:
        return [f"sample {number}" for number in chosen]
    names = manifest.class_labels
    return [" ".join(names[label].split()) for label in labels]


def _tile(image: Array) -> "Image":
    """Return bytes (1 or 3, height, width) as a picture of a visible size.

    Large images are reduced to LARGEST; small ones are enlarged by a whole factor without interpolation.
    """
    from PIL import Image

    picture = Image.fromarray(image[0] if len(image) == 1 else image.transpose(1, 2, 0)).convert("RGB")
    side = max(picture.size)
    if side > LARGEST:
        picture.thumbnail((LARGEST, LARGEST))
        return picture
    times = max(1, round(USUAL / side))
    # Without interpolation, the pixels of small images remain visible.
    return picture.resize((picture.width * times, picture.height * times), Image.Resampling.NEAREST)


def _sheet(
    title: str, images: Sequence["Image"], captions: Sequence[str], places: Indices, columns: int
) -> "Image":
    """Return the sheet with a title and the images, of one size, above their captions.

    `places` are the tile numbers of the images, row by row from 0.
    """
    from PIL import Image, ImageDraw, ImageFont

    width, height = max(SMALLEST, images[0].width) + GAP, images[0].height + TEXT + 2 * GAP
    top, rows = MARGIN + TITLE + GAP, int(places.max()) // columns + 1
    sheet = Image.new("RGB", (2 * MARGIN - GAP + columns * width, top + rows * height + MARGIN - GAP), PAPER)
    draw = ImageDraw.Draw(sheet)
    draw.text((MARGIN, MARGIN), title, fill=INK, font=ImageFont.load_default(TITLE), anchor="lt")
    draw.font = ImageFont.load_default(TEXT)
    for image, caption, place in zip(images, captions, places.tolist(), strict=True):
        row, column = divmod(place, columns)
        middle, upper = MARGIN + column * width + (width - GAP) // 2, top + row * height
        sheet.paste(image, (middle - image.width // 2, upper))
        text = _fitting(draw, caption, width - GAP)
        draw.text((middle, upper + image.height + TEXT + 1), text, fill=INK, anchor="ms")
    return sheet


def _fitting(draw: "ImageDraw", text: str, width: int) -> str:
    """Return the text of one line, shortened if it is wider than `width` pixels."""
    short = text
    while draw.textlength(short) > width and text:
        text = text[:-1]
        short = text.rstrip(" ,") + "…"
    return short


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
