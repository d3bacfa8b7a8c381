import io

import numpy as np
import pytest
from PIL import Image

from nnlo_lib.data.readers import image as imaging
from nnlo_lib.data.readers.image import ImageError, decode, image_header, resized

RNG = np.random.default_rng(0)


def encoded(pixels, mode="RGB", kind="PNG", **options):
    file = io.BytesIO()
    Image.fromarray(pixels).convert(mode).save(file, kind, **options)
    return file.getvalue()


def picture(height=20, width=30):
    return RNG.integers(0, 256, (height, width, 3), dtype=np.uint8)


def test_lossless_kinds_give_their_pixels_whatever_they_are_called():
    pixels = picture()
    for kind in ("PNG", "BMP", "TIFF", "PPM"):
        assert np.array_equal(decode(encoded(pixels, kind=kind)), pixels)


SMOOTH = np.linspace(0, 255, 64 * 64 * 3).reshape(64, 64, 3).astype(np.uint8)


def distance(data, expected):
    """Return the mean difference of the values: small for JPEG losses, large for a wrong color space."""
    return abs(decode(data).astype(int) - expected.astype(int)).mean()


@pytest.mark.parametrize("mode", ["CMYK", "L", "RGB"])
def test_jpeg_of_any_colours_becomes_rgb(mode):
    data = encoded(SMOOTH, mode, "JPEG", quality=95)
    grey = np.repeat(np.asarray(Image.fromarray(SMOOTH).convert("L"))[:, :, None], 3, axis=2)
    assert distance(data, grey if mode == "L" else SMOOTH) < 4


def test_ycck_jpeg_becomes_rgb():
    """Adobe transform 2 holds YCbCr of 255 minus the stored CMYK.

    Adobe stores CMYK inverted, so the YCbCr is of C = 255 - red.
    """
    colours = np.asarray(Image.fromarray(255 - SMOOTH).convert("YCbCr"))
    stored = np.dstack([colours, np.full((64, 64), 255, np.uint8)])
    file = io.BytesIO()
    Image.fromarray(255 - stored, "CMYK").save(file, "JPEG", quality=95)  # Pillow inverts CMYK itself
    data = bytearray(file.getvalue())
    transform = data.index(b"Adobe") + 11
    assert data[transform] == 0
    data[transform] = 2
    assert distance(bytes(data), SMOOTH) < 4


def test_grey_alpha_palette_and_sixteen_bits():
    grey = picture()[:, :, 0]
    assert np.array_equal(decode(encoded(grey, "L")), np.repeat(grey[:, :, None], 3, axis=2))
    assert np.array_equal(decode(encoded(grey, "L"), "grey")[:, :, 0], grey)
    pixels = picture()
    assert np.array_equal(decode(encoded(pixels, "RGBA")), pixels)
    few = np.full((4, 4, 3), 255, np.uint8)
    few[0] = 0
    assert np.array_equal(decode(encoded(few, "P")), few)


@pytest.mark.parametrize("kind", ["PNG", "TIFF", "PPM"])
def test_gray_images_of_sixteen_bits_keep_their_levels(kind):
    """A 12-bit camera: 800 levels of 65,536, of which the high byte has 4."""
    levels = RNG.permutation(800).reshape(20, 40).astype(np.uint16)
    deep = io.BytesIO()
    Image.fromarray(levels).save(deep, kind)
    for colour, channels in (("rgb", 3), ("grey", 1)):
        pixels = decode(deep.getvalue(), colour)
        assert pixels.shape == (20, 40, channels)
        assert np.array_equal(np.rint(pixels.astype(np.float64) * 65_535), np.dstack([levels] * channels))
        for resize in ("pydtnn", "standard"):
            assert len(np.unique(resized(pixels, resize, 12))) > 100


def test_white_is_zero_in_some_tiffs():
    levels = np.array([[0, 65_535], [655, 64_880]], np.uint16)
    file = io.BytesIO()
    Image.fromarray(levels).save(file, "TIFF", tiffinfo={262: 0})
    assert np.allclose(decode(file.getvalue(), "grey")[:, :, 0], 1 - levels / 65_535, atol=1e-6)


@pytest.mark.parametrize("resize", ["pydtnn", "standard"])
def test_floats_are_resized_as_bytes_are(resize):
    pixels = picture(40, 50)
    floats = resized(pixels.astype(np.float32) / np.float32(255), resize, 16)
    assert floats.dtype == np.float32
    # Bytes are rounded, by "standard" once per axis, or truncated.
    assert abs(255 * floats - resized(pixels, resize, 16)).max() < 1.6


@pytest.mark.parametrize(
    ("kind", "data", "expected"),
    [
        ("ppm", b"P6\n2 1\n65535\n" + bytes(12), (1, False, ("8 of their 16 bits",))),
        ("png", encoded(np.zeros((5, 3), np.uint16), "I;16"), (3, True, ())),
        ("jpg", encoded(picture(), kind="JPEG"), (20, False, ())),
        ("gif", encoded(SMOOTH, kind="GIF", save_all=True, append_images=[Image.new("RGB", (64, 64), each) for each in ("red", "blue")]),
         (64, False, ("the first of their 3 pages",))),
    ],
)  # fmt: skip
def test_the_header_says_what_the_pixels_lose(tmp_path, kind, data, expected):
    path = tmp_path / f"1.{kind}"
    path.write_bytes(data)
    found, shorter, has_16_bits, losses = image_header(path), *expected
    assert found[:2] == (shorter, has_16_bits)
    assert [text in loss for text, loss in zip(losses, found.losses, strict=True)] == [True] * len(losses)
    path.write_bytes(data[:4])
    assert image_header(path) is None


# What a camera stores of an upright picture, by the definition of EXIF: 6 has its first row at the right.
STORED = {
    1: lambda upright: upright,
    2: lambda upright: upright[:, ::-1],
    3: lambda upright: upright[::-1, ::-1],
    4: lambda upright: upright[::-1],
    5: lambda upright: upright.swapaxes(0, 1),
    6: lambda upright: np.rot90(upright),
    7: lambda upright: upright[::-1, ::-1].swapaxes(0, 1),
    8: lambda upright: np.rot90(upright, -1),
}


@pytest.mark.parametrize("kind", ["PNG", "TIFF", "WEBP"])
@pytest.mark.parametrize("orientation", STORED)
def test_photos_are_turned_upright(kind, orientation):
    pixels, exif = picture(), Image.Exif()
    exif[0x0112] = orientation
    stored = np.ascontiguousarray(STORED[orientation](pixels))
    options = {"lossless": True} if kind == "WEBP" else {}
    assert np.array_equal(decode(encoded(stored, kind=kind, exif=exif, **options)), pixels)


def test_a_damaged_note_of_a_camera_is_no_damaged_photo():
    data = encoded(SMOOTH, kind="JPEG", exif=b"Exif\0\0MM\0*\0\0\0\x08\xff\xff")
    assert distance(data, SMOOTH) < 4


def tiff(dtype):
    Image.fromarray(np.ones((4, 4), dtype)).save(file := io.BytesIO(), "TIFF")
    return file.getvalue()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "not a decodable image"),
        (
            b"not an image",
            r"^not a decodable image \(cannot identify image file\)$",
        ),  # without the address of an object
        (b"\xff\xd8\xff\xe0", "not a decodable image"),
        (tiff(np.float32), "samples of 32 bits"),
        (tiff(np.int32), "samples of 32 bits"),
        (encoded(picture(), kind="EPS"), "cannot identify"),  # which would run a program
    ],
    ids=range(6),
)
def test_what_is_no_image_is_refused(data, message):
    with pytest.raises(ImageError, match=message):
        decode(data)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "BMP", "GIF", "WEBP", "TIFF", "PPM"])
def test_a_cut_image_is_an_error_or_lost_no_pixel(kind):
    data = encoded(picture(), kind=kind)
    whole, refused = decode(data), 0
    lengths = [*range(0, len(data) - 60, 7), *range(len(data) - 60, len(data))]
    for length in lengths:
        try:
            pixels = decode(data[:length])
        except ImageError:
            refused += 1
        else:
            assert np.array_equal(pixels, whole), length
    # The last checksum and the end chunk of a PNG file hold no pixels.
    assert refused >= len(lengths) - 20


def tensorflow_1(image, size):
    """Convert an image as PyDTNN does, pixel by pixel.

    The steps are central_crop 0.875, resize_bilinear without aligned corners, and a cast to uint8.
    """
    top, left = (int((side - side * 0.875) / 2) for side in image.shape[:2])
    image = image[top : image.shape[0] - top, left : image.shape[1] - left].astype(np.float32)
    out = np.empty((size, size, 3), np.uint8)
    for y, x in np.ndindex(size, size):
        in_y, in_x = (
            np.float32(y) * np.float32(image.shape[0] / size),
            np.float32(x) * np.float32(image.shape[1] / size),
        )
        y0, x0 = int(in_y), int(in_x)
        y1, x1 = min(y0 + 1, image.shape[0] - 1), min(x0 + 1, image.shape[1] - 1)
        fy, fx = in_y - np.float32(y0), in_x - np.float32(x0)
        upper = image[y0, x0] + (image[y0, x1] - image[y0, x0]) * fx
        lower = image[y1, x0] + (image[y1, x1] - image[y1, x0]) * fx
        out[y, x] = (upper + (lower - upper) * fy).astype(np.uint8)
    return out


@pytest.mark.parametrize(
    ("height", "width", "size"), [(20, 30, 12), (30, 20, 33), (16, 16, 14), (7, 5, 9), (1, 1, 4)]
)
def test_pydtnns_resize_against_its_definition(height, width, size):
    pixels = picture(height, width)
    assert np.array_equal(resized(pixels, "pydtnn", size).transpose(1, 2, 0), tensorflow_1(pixels, size))


@pytest.mark.parametrize(("height", "width"), [(64, 64), (64, 100), (101, 64), (40, 300), (64, 70), (66, 64)])
def test_standard_resize_is_what_torchvision_does(height, width):
    pixels, size = picture(height, width), 28
    shorter = round(size * 256 / 224)
    if width < height:
        target = (shorter, int(height * shorter / width))
    else:
        target = (int(width * shorter / height), shorter)
    whole = Image.fromarray(pixels).resize(target, Image.BILINEAR)
    left, top = round((target[0] - size) / 2), round((target[1] - size) / 2)
    expected = np.asarray(whole.crop((left, top, left + size, top + size)))
    assert np.array_equal(resized(pixels, "standard", size).transpose(1, 2, 0), expected)


def test_images_of_other_sizes_are_refused(monkeypatch):
    with pytest.raises(ImageError, match=r"30 x 20 pixels instead of 12 x 12"):
        resized(picture(), "none", 12)
    with pytest.raises(ImageError, match="too elongated"):
        resized(np.zeros((1, 65_535, 3), np.uint8), "standard", 224)
    with pytest.raises(ImageError, match="declares 70000 x 1 pixels"):
        decode(encoded(np.zeros((1, 70_000, 3), np.uint8)))
    monkeypatch.setattr(imaging, "MAX_PIXELS", 599)
    with pytest.raises(ImageError, match="declares 30 x 20 pixels"):
        decode(encoded(picture()))
