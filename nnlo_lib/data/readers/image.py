"""Decoding of images and resizing to square arrays."""

import io
import warnings
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from PIL.Image import Image

Pixels = npt.NDArray[np.uint8]
Indices = npt.NDArray[np.intp]
ColorMode = Literal["rgb", "grey"]
Resize = Literal["pydtnn", "standard", "none"]

# Pillow supports more formats, but runs external programs for some of them.
FORMATS = ("JPEG", "PNG", "BMP", "GIF", "WEBP", "TIFF", "PPM")
MAX_PIXELS = 64_000_000
LONGEST_SIDE = 65_535  # limit of the JPEG format
CENTRAL = 0.875  # PyDTNN's central_crop
SHORTER = 256 / 224  # shorter side relative to the side of the crop, by convention


class ImageError(ValueError):
    """Reason why bytes cannot be decoded or stored as an image."""


def decode(data: bytes, colour: ColorMode = "rgb") -> Pixels:
    """Return an encoded image as (height, width, channels): 3 channels, or 1 if `colour` is "grey".

    The image may have any of the FORMATS. The format is detected from the first bytes. Transparency and EXIF
    rotation are ignored, as in TensorFlow. Decoded JPEGs equal TensorFlow's with dct_method INTEGER_ACCURATE;
    its default, INTEGER_FAST, deviates by 1.2 of 255 on average. Raises ImageError if the bytes are damaged
    or not an image, or if the image is too large.
    """
    from PIL import Image

    try:
        with warnings.catch_warnings(action="ignore"), Image.open(io.BytesIO(data), formats=FORMATS) as image:
            # The header gives the size; pixels are decoded only below.
            _refuse_large(image.width, image.height)
            pixels = np.asarray(_eight_bits(image).convert("RGB" if colour == "rgb" else "L"))
    except ImageError:
        raise
    except Exception as error:  # Pillow's decoders raise exceptions of many types for damaged bytes
        raise ImageError(f"not a decodable image ({error})") from error
    return pixels if colour == "rgb" else pixels[:, :, np.newaxis]


def _refuse_large(width: int, height: int) -> None:
    if width * height > MAX_PIXELS or max(width, height) > LONGEST_SIDE:
        raise ImageError(
            f"declares {width} x {height} pixels, more than the limit of {MAX_PIXELS:,} or {LONGEST_SIDE:,} per side"
        )


def _eight_bits(image: "Image") -> "Image":
    """Return 16-bit gray images reduced to their high byte, because Pillow's convert would clip them."""
    if image.mode == "F" or (image.mode == "I" and image.format == "TIFF"):
        raise ImageError("samples of 32 bits are not supported, because their white level is unknown")
    if not image.mode.startswith("I"):
        return image
    from PIL import Image

    return Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))


def resized(image: Pixels, resize: Resize, size: int) -> Pixels:
    """Return an image (height, width, channels) as a square (channels, size, size).

    Pillow's `draft` would decode large JPEGs faster, but to other pixels.

    Args:
        image: uint8 pixels.
        resize: "pydtnn" stretches the central 87.5 % of each side as TensorFlow 1's resize_bilinear does (no
            aligned corners, no half-pixel centers, no antialias) and truncates the values. "standard" scales
            the shorter side to round(size * 256 / 224) by Pillow's bilinear filter and crops the center, with
            the roundings of torchvision's Resize (longer side truncated) and CenterCrop (offset rounded half
            to even). "none" requires that the image has the size already.
        size: side of the result, in pixels.
    Raises:
        ImageError: if the image has another size ("none") or is too elongated to resize ("standard").
    """
    square = {"pydtnn": _pydtnn, "standard": _standard, "none": _unchanged}[resize](image, size)
    return np.ascontiguousarray(square.transpose(2, 0, 1))


def _pydtnn(image: Pixels, size: int) -> Pixels:
    top, left = (int((side - side * CENTRAL) / 2) for side in image.shape[:2])
    return _bilinear(image[top : image.shape[0] - top, left : image.shape[1] - left], size)


def _bilinear(image: Pixels, size: int) -> Pixels:
    """Interpolate at i * in / out between the pixels below and above, in float32, and truncate.

    Values are gathered plane by plane, which takes 40 % of the time of gathering pixel by pixel.
    """
    height, width, channels = image.shape
    above, below, down = _places(height, size)
    left, right, across = _places(width, size)
    first, second = (_columns(places, channels) for places in (left, right))
    across = np.tile(across, channels)

    # float32 and this order of operations, so that the pixels equal TensorFlow's bit for bit.
    def row(places: Indices) -> npt.NDArray[np.float32]:
        rows = image[places].reshape(size, width * channels)
        start = rows.take(first, axis=1).astype(np.float32)
        return start + (rows.take(second, axis=1) - start) * across

    upper = row(above)
    values = (upper + (row(below) - upper) * down[:, np.newaxis]).astype(np.uint8)
    return values.reshape(size, channels, size).transpose(0, 2, 1)


def _places(side: int, size: int) -> tuple[Indices, Indices, npt.NDArray[np.float32]]:
    """Return for each output pixel the lower and upper input pixels and its distance (0..1) to the lower."""
    exact = np.arange(size, dtype=np.float32) * np.float32(side / size)
    lower = exact.astype(np.intp)
    return lower, np.minimum(lower + 1, side - 1), exact - lower.astype(np.float32)


def _columns(places: Indices, channels: int) -> Indices:
    """Return the indices of the pixels at `places` in a row of interleaved channels, ordered by channel."""
    return (places * channels + np.arange(channels)[:, np.newaxis]).ravel()


def _standard(image: Pixels, size: int) -> Pixels:
    from PIL import Image

    height, width = image.shape[:2]
    shorter = round(size * SHORTER)
    target = (int(shorter * width / min(height, width)), int(shorter * height / min(height, width)))
    if target[0] * target[1] > MAX_PIXELS:
        raise ImageError(
            f"{width} x {height} pixels, too elongated: more than {MAX_PIXELS:,} pixels after resizing"
        )
    picture = Image.fromarray(image if image.shape[2] == 3 else image[:, :, 0])
    larger = np.asarray(picture.resize(target, Image.Resampling.BILINEAR)).reshape(target[1], target[0], -1)
    top, left = (round((side - size) / 2) for side in larger.shape[:2])
    return larger[top : top + size, left : left + size]


def _unchanged(image: Pixels, size: int) -> Pixels:
    if image.shape[:2] != (size, size):
        raise ImageError(
            f"{image.shape[1]} x {image.shape[0]} pixels instead of {size} x {size} (data.reader.resize: none)"
        )
    return image
