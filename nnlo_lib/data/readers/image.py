"""Encoded images to square arrays: decoding, and the two ways to resize."""

import io
import warnings
from typing import Literal

import numpy as np
import numpy.typing as npt

Pixels = npt.NDArray[np.uint8]
Resize = Literal["pydtnn", "standard", "none"]

MOST_PIXELS = 64_000_000
CENTRAL = 0.875  # PyDTNN's central_crop
SHORTER = 256 / 224  # shorter side per side of the crop, as the field has it


class ImageError(ValueError):
    """Why bytes are no image that can be stored."""


def decode(data: bytes, colour: str = "rgb") -> Pixels:
    """Decode an image of any kind to (height, width, channels), 3 channels or for `colour` grey 1.

    The first bytes decide the format, not a name; EXIF rotation is left alone, as TensorFlow's decoder does.
    Raises ImageError if the image is damaged, too large or no image.
    """
    from PIL import Image

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(io.BytesIO(data)) as image:
                if image.width * image.height > MOST_PIXELS:
                    raise ImageError(f"declares {image.width} x {image.height} pixels")
                pixels = np.asarray(_eight_bits(image).convert("RGB" if colour == "rgb" else "L"))
    except ImageError:
        raise
    except Exception as error:  # Pillow's decoders raise nearly anything on damaged bytes
        raise ImageError(f"no image that can be decoded ({error})") from error
    return pixels if colour == "rgb" else pixels[:, :, np.newaxis]


def _eight_bits(image: "Image.Image") -> "Image.Image":  # type: ignore[name-defined]  # noqa: F821
    """Scale 16-bit grey to 8 bits, which Pillow's convert would clip."""
    if not image.mode.startswith(("I", "F")):
        return image
    from PIL import Image

    return Image.fromarray((np.asarray(image).astype(np.int64) >> 8).clip(0, 255).astype(np.uint8))


def resized(image: Pixels, resize: Resize, size: int) -> Pixels:
    """Return (channels, size, size) of an image (height, width, channels).

    pydtnn: the central 87.5 % of each side, stretched as TensorFlow 1's resize_bilinear does (no aligned corners, no
    antialias), truncated. standard: shorter side to round(size * 256 / 224) by Pillow's bilinear filter, centre crop,
    with the roundings of torchvision's Resize and CenterCrop.
    none: the image has the size already, or ImageError.
    """
    square = {"pydtnn": _pydtnn, "standard": _standard, "none": _as_it_is}[resize](image, size)
    return np.ascontiguousarray(square.transpose(2, 0, 1))


def _pydtnn(image: Pixels, size: int) -> Pixels:
    top, left = (int((side - side * CENTRAL) / 2) for side in image.shape[:2])
    return _bilinear(image[top : image.shape[0] - top, left : image.shape[1] - left], size)


def _bilinear(image: Pixels, size: int) -> Pixels:
    """Interpolate at i * in / out between the pixels below and above, in float32, and truncate."""
    above, below, down = _places(image.shape[0], size)
    left, right, across = _places(image.shape[1], size)
    across, down = across[:, np.newaxis], down[:, np.newaxis, np.newaxis]

    def row(places: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
        rows = image[places]
        first = rows[:, left].astype(np.float32)
        return first + (rows[:, right] - first) * across

    upper = row(above)
    values: Pixels = (upper + (row(below) - upper) * down).astype(np.uint8)
    return values


def _places(
    side: int, size: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.float32]]:
    """Return for each output pixel the input pixels below and above it, and how far it is between them."""
    exact = np.arange(size, dtype=np.float32) * np.float32(side / size)
    lower = np.floor(exact).astype(np.int64)
    return lower, np.minimum(lower + 1, side - 1), exact - lower.astype(np.float32)


def _standard(image: Pixels, size: int) -> Pixels:
    from PIL import Image

    height, width = image.shape[:2]
    shorter = round(size * SHORTER)
    target = (int(shorter * width / min(height, width)), int(shorter * height / min(height, width)))
    picture = Image.fromarray(image if image.shape[2] == 3 else image[:, :, 0])
    larger = np.asarray(picture.resize(target, Image.Resampling.BILINEAR)).reshape(target[1], target[0], -1)
    top, left = (round((side - size) / 2) for side in larger.shape[:2])
    return larger[top : top + size, left : left + size]


def _as_it_is(image: Pixels, size: int) -> Pixels:
    if image.shape[:2] != (size, size):
        raise ImageError(
            f"is {image.shape[1]} x {image.shape[0]} pixels, not {size} x {size}; choose a `resize`"
        )
    return image
