"""Augmentation: flips, crops and windows by brute force, and draws that depend on the position of a sample alone."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nnlo_lib.data.loading.augment import Augment, Mixture, center_crop

RNG = np.random.default_rng(0)


def images(count, height=6, width=8, channels=2):
    """Return random images without zeros, so that zero pixels in the output are padding."""
    return RNG.integers(1, 256, (count, channels, height, width), dtype=np.uint8)


def windows(image, height, width):
    """Return every crop of an image, by brute force."""
    tops, lefts = range(image.shape[1] - height + 1), range(image.shape[2] - width + 1)
    return [image[:, top : top + height, left : left + width] for top in tops for left in lefts]


def test_flip_mirrors_left_and_right_with_the_probability_asked():
    before = images(4000, 2, 3)
    (after,) = Augment(flip=0.3, seed=1)((before.copy(),), 0, 0)
    flipped = np.array([np.array_equal(new, old[:, :, ::-1]) for new, old in zip(after, before, strict=True)])
    kept = np.array([np.array_equal(new, old) for new, old in zip(after, before, strict=True)])
    assert (flipped | kept).all()
    assert 0.27 < (flipped & ~kept).mean() < 0.33  # 0.3 +- 4 standard deviations


@pytest.mark.parametrize(
    ("pad", "crop", "side"), [(0, 4, (4, 4)), (2, None, (6, 8)), (2, 5, (5, 5)), (0, 6, (6, 6))]
)
def test_crop_is_a_window_of_the_padded_image_at_any_place(pad, crop, side):
    before = images(300)
    (after,) = Augment(pad=pad, crop=crop, seed=1)((before.copy(),), 0, 0)
    assert after.shape == (300, 2, *side)
    places = set()
    for new, old in zip(after, before, strict=True):
        candidates = windows(np.pad(old, ((0, 0), (pad, pad), (pad, pad))), *side)
        matches = [place for place, candidate in enumerate(candidates) if np.array_equal(new, candidate)]
        assert matches
        places.add(matches[0])
    assert len(places) == len(candidates)


def test_window_keeps_a_square_and_moves_it():
    before = images(400)
    (after,) = Augment(window=3, window_probability=0.5, seed=1)((before.copy(),), 0, 0)
    changed = [(new, old) for new, old in zip(after, before, strict=True) if not np.array_equal(new, old)]
    assert 150 < len(changed) < 250
    for new, old in changed:
        rows, columns = (np.flatnonzero((new != 0).any(axis=axes)) for axes in ((0, 2), (0, 1)))
        assert (len(rows), len(columns)) == (3, 3)
        square = new[:, rows[0] : rows[0] + 3, columns[0] : columns[0] + 3]
        assert any(np.array_equal(square, candidate) for candidate in windows(old, 3, 3))
    (whole,) = Augment(window=99, window_probability=1)((before.copy(),), 0, 0)
    assert np.array_equal(whole, before)


@settings(max_examples=30)
@given(cuts=st.lists(st.integers(0, 40), max_size=5), epoch=st.integers(0, 9), start=st.integers(0, 10**6))
def test_a_sample_is_changed_by_its_position_alone(cuts, epoch, start):
    augment, before = Augment(0.5, 2, 5, 3, 0.5, seed=7), images(40)
    (whole,) = augment((before.copy(),), epoch, start)
    for low, high in pairwise([0, *sorted(cuts), 40]):
        (part,) = augment((before[low:high].copy(),), epoch, start + low)
        assert np.array_equal(part, whole[low:high])


def test_seeds_epochs_and_positions_draw_apart():
    before = images(64)
    drawn = {
        Augment(0.5, 2, 5, seed=seed)((before.copy(),), epoch, start)[0].tobytes()
        for seed in (0, 1) for epoch in (0, 1) for start in (0, 64)
    }  # fmt: skip
    assert len(drawn) == 8


def test_draws_are_the_same_in_every_version():
    pixels = np.arange(1, 65, dtype=np.uint8).reshape(1, 1, 8, 8).repeat(4, axis=0)
    (after,) = Augment(flip=0.5, crop=2, seed=1)((pixels,), 3, 5)
    expected = [[[18, 19], [26, 27]], [[42, 43], [50, 51]], [[3, 2], [11, 10]], [[10, 9], [18, 17]]]
    assert after[:, 0].tolist() == expected


def test_other_inputs_and_other_types_pass():
    table = RNG.normal(size=(4, 5))
    floats = RNG.normal(size=(4, 1, 6, 6)).astype(np.float32)
    same, cropped = Augment(crop=3)((table, floats), 0, 0)
    assert same is table
    assert (cropped.shape, cropped.dtype) == ((4, 1, 3, 3), np.float32)


def test_the_center_crop_leaves_smaller_images_alone():
    pixels = np.arange(2 * 1 * 5 * 6).reshape(2, 1, 5, 6)
    (cut,) = center_crop((pixels,), 3)
    assert np.array_equal(cut, pixels[:, :, 1:4, 1:4])
    assert center_crop((pixels,), 9)[0].shape == pixels.shape
    assert Augment(0.5, 2, 3)((pixels[:0],), 0, 0)[0].shape == (0, 1, 3, 3)


def test_a_mixture_has_a_rectangle_of_the_next_image_or_a_share_of_all_of_it():
    before, labels = images(4001, 7, 5).astype(np.float64), RNG.permutation(4001)
    (after,), targets = Mixture(mixup=0.5, cutmix=1, seed=1)((before,), labels, 3, 11)
    assert targets[:, :2].tolist() == list(map(list, pairwise(labels)))
    cuts, covered = [], np.zeros((7, 5))
    for image, one, other, share in zip(after, before, before[1:], targets[:, 2], strict=False):
        kept, taken = (image == one).all(0), (image == other).all(0)
        if (kept | taken).all():
            rows, columns = (~kept).any(1), (~kept).any(0)
            assert np.array_equal(~kept, np.outer(rows, columns)), "a rectangle without holes"
            assert (np.diff(np.flatnonzero(rows)) == 1).all()
            assert (np.diff(np.flatnonzero(columns)) == 1).all()
            assert share == pytest.approx(kept.mean())
            cuts.append(share)
            covered += ~kept
        else:
            np.testing.assert_allclose(image, share * one + (1 - share) * other)
    fractions = np.setdiff1d(targets[:, 2], cuts)
    assert 1800 < len(cuts) < 2200
    assert 0.46 < fractions.mean() < 0.54  # of Beta(0.5, 0.5), whose variance is 1/8
    assert 0.11 < fractions.var() < 0.14
    assert covered.min() > 0.05 * len(cuts), "every pixel"


def test_a_mixture_of_a_sample_depends_on_its_position_alone():
    before, labels = images(30), np.arange(30) + 1j
    mixture = Mixture(mixup=0.3, cutmix=2, seed=1)
    (whole,), targets = mixture((before,), labels, 3, 100)
    (part,), of_part = mixture((before[10:21],), labels[10:21], 3, 110)
    assert np.array_equal(whole[10:20], part)
    assert np.array_equal(targets[10:20], of_part)
    assert not np.array_equal(mixture((before,), labels, 4, 100)[0][0], whole)
