"""Decoding of images and resizing to square arrays."""

import io
import warnings
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from PIL.Image import Image

Pixels = npt.NDArray[Any]  # uint8, or float32 in 0..1
Indices = npt.NDArray[np.intp]
ColorMode = Literal["rgb", "grey"]
Resize = Literal["pydtnn", "standard", "none"]

# Pillow supports more formats, but runs external programs for some of them.
FORMATS = ("JPEG", "PNG", "BMP", "GIF", "WEBP", "TIFF", "PPM")
MAX_PIXELS = 64_000_000
LONGEST_SIDE = 65_535  # limit of the JPEG format
CENTRAL = 0.875  # PyDTNN's central_crop
SHORTER = 256 / 224  # shorter side relative to the side of the crop, by convention
WHITE_OF_16_BITS = np.float32(65_535)


class ImageError(ValueError):
    """Reason why bytes cannot be decoded or stored as an image."""


def decode(data: bytes, colour: ColorMode = "rgb") -> Pixels:
    """Return an encoded image as (height, width, channels): 3 channels, or 1 if `colour` is "grey".

    Gray images of 16 bits become float32 in 0..1, all other images bytes. Photos are turned upright, as their EXIF orientation says;
    TensorFlow ignores it. Transparency is ignored, as in TensorFlow. Decoded JPEGs equal TensorFlow's with dct_method
    INTEGER_ACCURATE; its default, INTEGER_FAST, deviates by 1.2 of 255 on average. Raises ImageError if the bytes cannot be used.
    """
    from PIL import Image, ImageOps

    try:
        with warnings.catch_warnings(action="ignore"), Image.open(io.BytesIO(data), formats=FORMATS) as image:
            # The header gives the size; pixels are decoded only below.
            if image.width * image.height > MAX_PIXELS or max(image.size) > LONGEST_SIDE:
                raise ImageError(
                    f"declares {image.width} x {image.height} pixels, more than the limit of {MAX_PIXELS:,} or "
                    f"{LONGEST_SIDE:,} per side"
                )
            deep = _has_16_bits(image)
            negative = deep and getattr(image, "tag_v2", {}).get(262) == 0  # TIFF's white is zero
            image.load()  # which turns a TIFF
            with suppress(Exception):  # a damaged note of the camera is no damaged image
                ImageOps.exif_transpose(image, in_place=True)
            pixels = np.asarray(image if deep else image.convert("RGB" if colour == "rgb" else "L"))
    except ImageError:
        raise
    except Exception as error:  # Pillow's decoders raise exceptions of many types for damaged bytes
        # The text names the object of the bytes, with its address.
        raise ImageError(f"not a decodable image ({str(error).partition(' <')[0]})") from error
    if deep:
        pixels = pixels.astype(np.float32) / WHITE_OF_16_BITS
        pixels = 1 - pixels if negative else pixels
    channels = 3 if colour == "rgb" else 1
    return pixels if pixels.ndim == 3 else pixels[:, :, np.newaxis].repeat(channels, axis=2)


def _has_16_bits(image: "Image") -> bool:
    """Return True for a gray image of 16 bits, which Pillow's convert would clip."""
    if image.mode == "F" or (image.mode == "I" and image.format == "TIFF"):
        raise ImageError(
            "samples of 32 bits or with a sign are not supported, because their white level is unknown"
        )
    return image.mode.startswith("I")


class ImageHeader(NamedTuple):
    """Facts of an image that need no decoding: its shorter side in pixels, its depth, and what `decode` leaves out."""

    shorter: int
    has_16_bits: bool
    losses: tuple[str, ...]


def image_header(path: Path) -> ImageHeader | None:
    """Return the header of an image file; None if the file is damaged, which its conversion reports."""
    from PIL import Image

    try:
        with warnings.catch_warnings(action="ignore"), Image.open(path, formats=FORMATS) as image:
            pages, has_16_bits = getattr(image, "n_frames", 1), _has_16_bits(image)
            # The arguments of the decoder have the type in the file, such as RGB;16B, or the white level of a PPM.
            is_cut = not has_16_bits and any(
                ";16" in str(args) or (isinstance(args, tuple) and codec.startswith("ppm") and args[1] > 255)
                for codec, _, _, args in image.tile
            )
            losses = {"keep 8 of their 16 bits per color; for all bits, use the reader arrays": is_cut,
                      f"keep the first of their {pages} pages or frames": pages > 1}  # fmt: skip
            return ImageHeader(
                min(image.size), has_16_bits, tuple(text for text, is_lost in losses.items() if is_lost)
            )
    except Exception:  # see decode
        return None


def as_type(pixels: Pixels, dtype: "np.dtype[Any]") -> Pixels:
    """Return pixels in the type of a store, bytes or float32 in 0..1. Raises ImageError if bytes cannot hold them."""
    if pixels.dtype == dtype:
        return pixels
    if dtype == np.uint8:
        raise ImageError("16 bits per pixel among images of 8 bits; convert it to 8 bits")
    return pixels.astype(np.float32) / np.float32(255)


def resized(image: Pixels, resize: Resize, size: int) -> Pixels:
    """Return an image (height, width, channels) as a square (channels, size, size).

    "pydtnn" stretches the central 87.5 % of each side as TensorFlow 1's resize_bilinear does (no aligned corners, no half-pixel
    centers, no antialias) and truncates the values. "standard" scales the shorter side to round(size * 256 / 224) by Pillow's bilinear
    filter and crops the center, with the roundings of torchvision's Resize (longer side truncated) and CenterCrop (offset rounded half
    to even). Raises ImageError if the image has another size ("none") or is too elongated to resize ("standard").
    """
    height, width = image.shape[:2]
    if resize == "pydtnn":
        top, left = (int((side - side * CENTRAL) / 2) for side in (height, width))
        image = _bilinear(image[top : height - top, left : width - left], size)
    elif resize == "standard":
        image = _standard(image, size)
    elif (height, width) != (size, size):
        raise ImageError(f"{width} x {height} pixels instead of {size} x {size} (data.reader.resize: none)")
    return np.ascontiguousarray(image.transpose(2, 0, 1))


def _bilinear(image: Pixels, size: int) -> Pixels:
    """Interpolate at i * in / out between the pixels below and above, in float32, and truncate.

    Values are gathered plane by plane, which takes 40 % of the time of gathering pixel by pixel. Floats are not truncated.
    """
    height, width, channels = image.shape
    above, below, down = _places(height, size)
    left, right, across = _places(width, size)
    # Of the pixels in a row of interleaved channels, ordered by channel.
    planes = np.arange(channels)[:, np.newaxis]
    first, second = ((places * channels + planes).ravel() for places in (left, right))
    across = np.tile(across, channels)

    # float32 and this order of operations, so that the pixels equal TensorFlow's bit for bit.
    def row(places: Indices) -> npt.NDArray[np.float32]:
        rows = image[places].reshape(size, width * channels)
        start = rows.take(first, axis=1).astype(np.float32)
        found: npt.NDArray[np.float32] = start + (rows.take(second, axis=1) - start) * across
        return found

    upper = row(above)
    values = (upper + (row(below) - upper) * down[:, np.newaxis]).astype(image.dtype)
    return values.reshape(size, channels, size).transpose(0, 2, 1)


def _places(side: int, size: int) -> tuple[Indices, Indices, npt.NDArray[np.float32]]:
    """Return for each output pixel the lower and upper input pixels and its distance (0..1) to the lower."""
    exact = np.arange(size, dtype=np.float32) * np.float32(side / size)
    lower = exact.astype(np.intp)
    return lower, np.minimum(lower + 1, side - 1), exact - lower.astype(np.float32)


def _standard(image: Pixels, size: int) -> Pixels:
    from PIL import Image

    height, width = image.shape[:2]
    shorter = round(size * SHORTER)
    target = (int(shorter * width / min(height, width)), int(shorter * height / min(height, width)))
    if target[0] * target[1] > MAX_PIXELS:
        raise ImageError(
            f"{width} x {height} pixels, too elongated: more than {MAX_PIXELS:,} pixels after resizing"
        )
    # Pillow has colors of bytes only, so that floats are resized channel by channel.
    planes = [image] if image.dtype == np.uint8 and image.shape[2] == 3 else np.moveaxis(image, 2, 0)
    pictures = (Image.fromarray(np.ascontiguousarray(plane)) for plane in planes)
    larger: Pixels = np.dstack(
        [np.asarray(each.resize(target, Image.Resampling.BILINEAR)) for each in pictures]
    )
    top, left = (round((side - size) / 2) for side in larger.shape[:2])
    return larger[top : top + size, left : left + size]
