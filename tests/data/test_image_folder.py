import os

import numpy as np
import pytest
from PIL import Image

from nnlo_lib.data.readers import read
from nnlo_lib.errors import UserError


def draw(path, colour, size=(9, 9)):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, colour).save(path)


def samples(folder, shard_size=100, **options):
    """{split: [(first pixel, label)]} of what was read."""
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


def paths_of(folder, split):
    contents = read("folder", folder, 1000, {"size": 8})
    (unit,) = (unit for unit in contents.units if unit.split == split)
    return {path for path, _ in unit.read.args[1]}


def test_few_images_change_sides_when_some_are_added(tmp_path):
    fill(tmp_path, 50)
    before = paths_of(tmp_path, "test")
    fill(tmp_path, 55)
    after = paths_of(tmp_path, "test")
    assert len(before - after) <= 3 * 3


def test_samples_mix_classes_and_do_not_depend_on_the_disk(tmp_path):
    fill(tmp_path / "a" / "train", 30)
    os.makedirs(tmp_path / "b" / "train")
    for name in reversed(COLOURS):
        fill(tmp_path / "b" / "train", 30, {name: COLOURS[name]})
    one, two = (samples(tmp_path / folder, 7)["train"] for folder in ("a", "b"))
    assert one == two
    assert len({label for _, label in one[:15]}) == 3


def test_only_images_in_plain_sight(tmp_path):
    fill(tmp_path / "train", 3)
    (tmp_path / "train" / "ant" / "notes.txt").write_text("mine")
    draw(tmp_path / "train" / "ant" / ".hidden.png", "red")
    draw(tmp_path / "train" / ".cache" / "x.png", "red")
    draw(tmp_path / "elsewhere" / "x.png", "red")
    (tmp_path / "train" / "ant" / "link.png").symlink_to(tmp_path / "elsewhere" / "x.png")
    (tmp_path / "train" / "bee" / "folder").symlink_to(tmp_path / "elsewhere")
    assert len(samples(tmp_path)["train"]) == 9


def test_grey_is_one_channel(tmp_path):
    fill(tmp_path, 5)
    block = read("folder", tmp_path, 100, {"size": 8, "colour": "grey"}).units[0].read()
    assert block.inputs[0].shape[1:] == (1, 8, 8)


def test_a_broken_image_is_named_or_left_out_and_counted(tmp_path):
    fill(tmp_path / "train", 3)
    (tmp_path / "train" / "bee" / "broken.jpg").write_bytes(b"no image")
    with pytest.raises(UserError, match=r"train/bee/broken\.jpg no image .*on_corrupt: skip"):
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


def test_layouts_that_do_not_fit(tmp_path):
    with pytest.raises(UserError, match=r"holds no folders of images; <split>/<class>/<image>"):
        read("folder", tmp_path, 9, {})
    with pytest.raises(UserError, match=r"cannot read .*nowhere"):
        read("folder", tmp_path / "nowhere", 9, {})
    fill(tmp_path / "train", 2)
    (tmp_path / "train" / "dog").mkdir()
    with pytest.raises(UserError, match=r"the class dog has no image to train from"):
        read("folder", tmp_path, 9, {})
    (tmp_path / "train" / "dog").rmdir()
    draw(tmp_path / "test" / "eel" / "1.png", "red")
    with pytest.raises(UserError, match=r"test has the class eel, which train has not"):
        read("folder", tmp_path, 9, {})
