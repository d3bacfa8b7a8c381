import math
import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from nnlo_lib.core.errors import UserError
from nnlo_lib.data.readers import read


def draw(path, colour, size=(9, 9)):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, colour).save(path)


def samples(folder, shard_size=100, **options):
    """Read the folder and return {split: [(first pixel, label)]}."""
    found = {}
    for unit in read("folder", folder, shard_size, {"size": 8} | options).units:
        block = unit.read()
        pixels = [tuple(image[:, 0, 0].tolist()) for image in block.inputs[0]]
        found.setdefault(unit.split, []).extend(zip(pixels, block.labels.tolist(), strict=True))
    return found


COLOURS = {"ant": (255, 0, 0), "bee": (0, 255, 0), "cat": (0, 0, 255)}


def fill(folder, count=5, colours=COLOURS):
    for name, colour in colours.items():
        for number in range(count):
            draw(folder / name / f"sub{number % 2}" / f"{number}.png", colour)


@pytest.mark.parametrize("test", ["test", "val", "validation"])
def test_split_folders(tmp_path, test):
    fill(tmp_path / "train", 5)
    fill(tmp_path / test, 2)
    found = samples(tmp_path)
    labels = {colour: number for number, colour in enumerate(COLOURS.values())}
    assert {split: len(items) for split, items in found.items()} == {"train": 15, "test": 6}
    assert all(labels[pixel] == label for items in found.values() for pixel, label in items)
    assert read("folder", tmp_path, 9, {}).class_names == ("ant", "bee", "cat")


def test_three_splits_stay_three(tmp_path):
    for name, count in (("train", 4), ("val", 2), ("test", 3)):
        fill(tmp_path / name, count)
    assert {split: len(items) for split, items in samples(tmp_path).items()} == {
        "train": 12,
        "validation": 6,
        "test": 9,
    }


def test_without_splits_a_part_of_each_class_is_the_test(tmp_path):
    fill(tmp_path, 10)
    found = samples(tmp_path, test_fraction=0.3)
    counts = {split: np.bincount([label for _, label in items]).tolist() for split, items in found.items()}
    assert counts == {"train": [7, 7, 7], "test": [3, 3, 3]}


def paths_of(folder, split, **options):
    units = read("folder", folder, 1000, {"size": 8} | options).units
    return {path for unit in units if unit.split == split for path, _ in unit.read.args[1]}


def ants(paths):
    return {path for path in paths if path.startswith("ant/")}


@settings(max_examples=25, deadline=None)
@given(
    count=st.integers(1, 12),
    added=st.integers(0, 4),
    fraction=st.floats(0.01, 0.99),
    seed=st.integers(0, 10**6),
)
def test_an_added_image_moves_at_most_one_other(tmp_path_factory, count, added, fraction, seed):
    folder = tmp_path_factory.mktemp("growing")
    names = [f"{seed + number}.jpg" for number in range(count + added)]
    draw(folder / "bee" / "1.jpg", "red")
    (folder / "ant").mkdir()
    for name in names[:count]:
        (folder / "ant" / name).touch()
    before = ants(paths_of(folder, "test", test_fraction=fraction))
    for name in names[count:]:
        (folder / "ant" / name).touch()
    after = ants(paths_of(folder, "test", test_fraction=fraction))
    old = {f"ant/{name}" for name in names[:count]}
    assert len(before ^ (after & old)) <= added
    assert abs(len(before) - fraction * count) <= 1
    train = ants(paths_of(folder, "train", test_fraction=fraction))
    assert train
    assert train.isdisjoint(after)


def test_no_image_is_lost_or_used_twice(tmp_path):
    fill(tmp_path, 10)
    listed = [paths_of(tmp_path, split) for split in ("train", "test")]
    there = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.png")}
    assert listed[0] | listed[1] == there
    assert len(listed[0]) + len(listed[1]) == len(there) == 30


def test_shards_are_cut_at_their_size(tmp_path):
    fill(tmp_path / "train", 5)
    units = read("folder", tmp_path, 6, {"size": 8}).units
    assert [unit.name for unit in units] == [f"train-{index:05d}-of-00003" for index in range(3)]
    blocks = [unit.read() for unit in units]
    assert [len(block.labels) for block in blocks] == [6, 6, 3]
    assert (blocks[0].labels.dtype, blocks[0].labels.shape) == (np.int64, (6,))
    assert (blocks[0].inputs[0].dtype, blocks[0].inputs[0].shape) == (np.uint8, (6, 3, 8, 8))


def test_samples_mix_classes_and_do_not_depend_on_the_disk(tmp_path):
    fill(tmp_path / "a" / "train", 30)
    os.makedirs(tmp_path / "b" / "train")
    for name in reversed(COLOURS):
        fill(tmp_path / "b" / "train", 30, {name: COLOURS[name]})
    one, two = (samples(tmp_path / folder, 7)["train"] for folder in ("a", "b"))
    assert one == two
    labels = np.array([label for _, label in one])
    assert len(set(labels[:15])) == 3
    # In a random order of three classes the label changes at two thirds of the 89 places.
    changes = int((np.diff(labels) != 0).sum())
    assert math.isclose(changes, 59, abs_tol=20)


def test_grey_is_one_channel(tmp_path):
    fill(tmp_path, 5)
    block = read("folder", tmp_path, 100, {"size": 8, "colour": "grey"}).units[0].read()
    assert block.inputs[0].shape[1:] == (1, 8, 8)


def test_a_broken_image_is_named_or_left_out_and_counted(tmp_path):
    fill(tmp_path / "train", 3)
    (tmp_path / "train" / "bee" / "broken.jpg").write_bytes(b"no image")
    with pytest.raises(UserError, match=r"train/bee/broken\.jpg: not a decodable image .*on_corrupt: skip"):
        samples(tmp_path)
    block = read("folder", tmp_path, 100, {"size": 8, "on_corrupt": "skip"}).units[0].read()
    assert len(block.labels) == 9
    assert block.skipped[0].startswith("train/bee/broken.jpg: ")


def test_an_image_that_went_meanwhile_is_named(tmp_path):
    fill(tmp_path, 5)
    units = read("folder", tmp_path, 100, {"size": 8}).units
    for path in tmp_path.rglob("*.png"):
        path.unlink()
    with pytest.raises(UserError, match=r"cannot read .*\.png: No such file"):
        units[0].read()


def test_nothing_but_broken_images_is_an_error_even_when_skipping(tmp_path):
    for name in ("ant", "bee"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "broken.jpg").write_bytes(b"no image")
    (unit,) = read("folder", tmp_path, 100, {"on_corrupt": "skip"}).units
    with pytest.raises(
        UserError, match=r"none of 2 images can be used \(.../broken\.jpg: not a decodable image"
    ):
        unit.read()


def test_suffixes_in_capitals_and_names_that_are_no_utf8(tmp_path):
    fill(tmp_path, 2)
    (tmp_path / "ant" / "sub0" / "0.png").rename(tmp_path / "ant" / "0.PNG")
    (tmp_path / "ant" / "sub1" / "1.png").rename(tmp_path / "ant" / os.fsdecode(b"\xff.png"))
    assert len(samples(tmp_path)["train"]) == 6


def test_images_that_should_have_the_size_and_have_not(tmp_path):
    fill(tmp_path, 1)
    with pytest.raises(UserError, match=r"\.png: 9 x 9 pixels instead of 8 x 8"):
        samples(tmp_path, resize="none")
    assert len(samples(tmp_path, resize="none", size=9)["train"]) == 3


def test_a_folder_without_classes(tmp_path):
    with pytest.raises(UserError, match=r"no folders of images found; expected <split>/<class>/<image>"):
        read("folder", tmp_path, 9, {})
    with pytest.raises(UserError, match=r"cannot read .*nowhere"):
        read("folder", tmp_path / "nowhere", 9, {})
    draw(tmp_path / "train" / "1.png", "red")
    with pytest.raises(
        UserError, match=r"train: no folders of images found; expected <split>/<class>/<image>"
    ):
        read("folder", tmp_path, 9, {})


@pytest.mark.parametrize("place", ["dog", "train/dog", "test/ant"])
def test_an_empty_class_is_named(tmp_path, place):
    fill(tmp_path if place == "dog" else tmp_path / "train", 2)
    (tmp_path / place).mkdir(parents=True)
    (tmp_path / place / "list.txt").touch()
    with pytest.raises(UserError, match=rf"{place}: no image found .*<split>/<class>/<image>"):
        read("folder", tmp_path, 9, {})


def test_a_class_that_only_the_test_has(tmp_path):
    fill(tmp_path / "train", 2)
    draw(tmp_path / "test" / "eel" / "1.png", "red")
    with pytest.raises(UserError, match=r"test: the class eel does not exist in train"):
        read("folder", tmp_path, 9, {})


def test_a_class_that_the_test_lacks_keeps_its_number(tmp_path):
    fill(tmp_path / "train", 2)
    draw(tmp_path / "test" / "cat" / "1.png", COLOURS["cat"])
    assert samples(tmp_path)["test"] == [(COLOURS["cat"], 2)]


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["test"], "the folders test are not a set of splits; expected <split>"),
        (
            ["train", "val", "validation"],
            "the folders train and val and validation are not a set of splits; expected <split>",
        ),
    ],
)
def test_splits_that_do_not_fit(tmp_path, names, message):
    for name in names:
        fill(tmp_path / name, 2)
    with pytest.raises(UserError, match=message):
        read("folder", tmp_path, 9, {})
