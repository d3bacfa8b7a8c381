"""Contact sheets: which samples are drawn, where, and in which colors."""

import numpy as np
import pytest
from helpers.synthetic_store import handmade
from PIL import Image

from nnlo_lib.core.errors import UserError
from nnlo_lib.data.contact_sheet import contact_sheet, image_input


def sheet(manifest, path, **options):
    contact_sheet(manifest, "train", path, **options)
    with Image.open(path) as picture:
        assert picture.format == "PNG"
        return np.asarray(picture.convert("RGB"))


def coloured(count):
    """Return one color per class, distinct from background and text, as bytes of shape (count, 3)."""
    numbers = np.arange(count)
    return np.stack([numbers % 50 * 5, numbers // 50 * 5, np.full(count, 200)], axis=1).astype(np.uint8)


def flat(colours, side):
    return np.broadcast_to(colours[:, :, np.newaxis, np.newaxis], (len(colours), 3, side, side)).copy()


def tiles(picture, colours):
    """Return (first row, first column, number of pixels) of each color, None for an absent color."""
    codes = picture.astype(int) @ [1, 256, 65536]
    known, first, counts = np.unique(codes, return_index=True, return_counts=True)
    found = zip(known.tolist(), first.tolist(), counts.tolist(), strict=True)
    where = {code: (*divmod(at, codes.shape[1]), count) for code, at, count in found}
    return [where.get(code) for code in (colours.astype(int) @ [1, 256, 65536]).tolist()]


@pytest.mark.parametrize(("side", "shown"), [(1, 96), (28, 84), (300, 128)])
def test_every_class_is_shown_at_a_size_to_look_at(tmp_path, side, shown):
    colours, labels = coloured(4), np.array([2, 0, 3, 1])
    manifest = handmade(tmp_path, {"train": (flat(colours, side)[labels], labels)})
    places = tiles(sheet(manifest, tmp_path / "a.png", columns=2, rows=2), colours)
    assert [pixels for _, _, pixels in places] == [shown**2] * 4
    (top, left, _), (_, right, _), (bottom, _, _), _ = places
    expected = [(top, left), (top, right), (bottom, left), (bottom, right)]
    assert [place[:2] for place in places] == expected
    assert right >= left + shown
    assert bottom >= top + shown


@pytest.mark.parametrize(
    ("classes", "samples", "tiles_each", "classes_a_row"),
    [(10, 20, 10, 1), (37, 9, 2, 5), (60, 2, 1, 10), (1, 120, 100, 1), (2, 3, 3, 1)],
)
def test_classes_share_the_sheet(tmp_path, classes, samples, tiles_each, classes_a_row):
    colours, labels = coloured(classes), np.repeat(np.arange(classes), samples)
    manifest = handmade(tmp_path, {"train": (flat(colours, 64)[labels], labels)}, shard=10_000)
    places = tiles(sheet(manifest, tmp_path / "a.png"), colours)
    assert [pixels for _, _, pixels in places] == [tiles_each * 128**2] * classes
    assert len({left for _, left, _ in places}) == classes_a_row


@pytest.mark.parametrize(
    "labels",
    [np.arange(1000), np.zeros(1000, np.int64), np.linspace(0, 1, 1000)],
    ids=["classes", "samples", "numbers"],
)
def test_of_too_many_classes_or_samples_some_are_left_out_evenly(tmp_path, labels):
    colours = coloured(1000)
    manifest = handmade(tmp_path, {"train": (flat(colours, 28), labels)}, shard=300)
    places = tiles(sheet(manifest, tmp_path / "a.png"), colours)
    shown = [number for number, place in enumerate(places) if place is not None]
    assert shown == list(range(0, 1000, 10))


def test_numbers_are_shown_from_least_to_greatest(tmp_path):
    values = np.array([-3.0, 1.0, 5.0, np.nan], np.float32).reshape(4, 1, 1, 1)
    manifest = handmade(tmp_path, {"train": (np.tile(values, (1, 1, 64, 64)), np.array([0, 1, 2, 3]))})
    picture = sheet(manifest, tmp_path / "a.png", columns=4, rows=1)
    row = picture[len(picture) // 2, :, 0]
    edges = row[np.flatnonzero(np.diff(row.astype(int), prepend=255))]
    levels = [int(level) for level in edges if level != 255]
    # Gray levels of minimum, middle, and NaN, which is drawn as 0. The maximum is as white as the background.
    assert levels == [0, 128, 96]


def test_bytes_with_a_scale_of_their_own(tmp_path):
    """Pixels of a store with scale 1/16 are drawn by that scale: 16 is white, 8 is gray."""
    pixels = np.full((1, 1, 8, 8), 8, np.uint8)
    manifest = handmade(tmp_path, {"train": (pixels, np.zeros(1, np.int64))}, scale=1 / 16)
    assert np.count_nonzero(np.all(sheet(manifest, tmp_path / "a.png") == 128, axis=2)) >= 96 * 96


def test_long_names_and_odd_letters_stay_below_their_tile(tmp_path):
    names = ("tench, Tinca tinca, a fish of fresh water\nand mud", "猫 Кот 🐈")
    manifest = handmade(tmp_path, {"train": (flat(coloured(2), 64), np.arange(2))}, class_names=names)
    picture = sheet(manifest, tmp_path / "a.png", columns=2, rows=1)
    (top, left, _), (_, right, _) = tiles(picture, coloured(2))
    below = picture[top + 128 :].min(axis=2) < 200
    assert below[:, left : left + 128].any()
    assert below[:, right : right + 128].any()
    assert not below[:, left + 128 : right].any()


def test_images_are_found_among_several_inputs(tmp_path):
    colours = coloured(2)
    inputs = [np.zeros((2, 5), np.float32), flat(colours, 64)]
    manifest = handmade(tmp_path, {"train": (inputs, np.arange(2))})
    assert image_input(manifest) == 1
    assert all(tiles(sheet(manifest, tmp_path / "a.png"), colours))


@pytest.mark.parametrize("shape", [(54,), (8, 8), (4, 8, 8)])
def test_what_is_no_image_is_refused(tmp_path, shape):
    manifest = handmade(tmp_path, {"train": (np.zeros((2, *shape), np.float32), np.arange(2))})
    assert image_input(manifest) is None
    message = r"digits: cannot draw a contact sheet, .* the inputs are features \("
    with pytest.raises(UserError, match=message):
        contact_sheet(manifest, "train", tmp_path / "a.png")
