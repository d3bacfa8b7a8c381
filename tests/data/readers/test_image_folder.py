"""Images in one folder per class: splits by folder or by hash, layouts as found in the wild, broken images, links."""

import itertools
import os
import zipfile
from unicodedata import normalize

import numpy as np
import pytest
from PIL import Image

from nnlo_lib.core.errors import UserError
from nnlo_lib.data.catalog import DatasetSpec
from nnlo_lib.data.fetch.fetch import fetch
from nnlo_lib.data.readers.base import read
from nnlo_lib.data.readers.folder import ImageTree
from nnlo_lib.data.readers.splits import SPLIT_NAMES

COLOURS = {"ant": (255, 0, 0), "bee": (0, 255, 0), "cat": (0, 0, 255)}
LAYOUT = "expected <split>/<class>/<image>"


def draw(path, colour="red", size=(9, 9)):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, colour).save(path)


def fill(folder, count=2, classes=COLOURS):
    for name, number in itertools.product(classes, range(count)):
        draw(folder / name / f"sub{number % 2}" / f"{number}.png", COLOURS.get(name, "red"))


def samples(folder, shard_size=100, **options):
    """Read the folder and return {split: [(first pixel, label)]}."""
    found = {}
    for unit in read("folder", folder, shard_size, {"size": 8} | options).units:
        block = unit.read()
        pixels = [tuple(image[:, 0, 0].tolist()) for image in block.inputs[0]]
        found.setdefault(unit.split, []).extend(zip(pixels, block.labels.tolist(), strict=True))
    return found


def sizes(folder):
    tree = ImageTree.of(folder)
    return {split: len(images) for split, images in tree.splits.items()}, tree.classes


def test_split_folders_have_the_labels_of_their_classes(tmp_path):
    fill(tmp_path / "train", 5)
    fill(tmp_path / "val", 2)
    draw(tmp_path / "test" / "cat" / "1.png", COLOURS["cat"])
    found = samples(tmp_path)
    labels = {colour: number for number, colour in enumerate(COLOURS.values())}
    assert {split: len(items) for split, items in found.items()} == {"train": 15, "validation": 6, "test": 1}
    assert all(labels[pixel] == label for items in found.values() for pixel, label in items)
    assert read("folder", tmp_path, 9, {}).class_names == ("ant", "bee", "cat")


def test_without_splits_a_part_of_each_class_is_the_test(tmp_path):
    fill(tmp_path, 10)
    found = samples(tmp_path, test_fraction=0.3)
    counts = {split: np.bincount([label for _, label in items]).tolist() for split, items in found.items()}
    assert counts == {"train": [7, 7, 7], "test": [3, 3, 3]}


@pytest.mark.parametrize("fraction", [0.05, 0.3, 0.95])
def test_an_added_image_moves_at_most_one_other(tmp_path, fraction):
    draw(tmp_path / "bee" / "1.png")
    before = None
    for number in range(12):
        draw(tmp_path / "ant" / f"{number}.jpg")
        units = read("folder", tmp_path, 1000, {"size": 8, "test_fraction": fraction}).units
        paths = {unit.split: {path for path, _ in unit.read.args[1] if "ant" in path} for unit in units}
        test = paths.get("test", set())
        assert len(paths["train"] | test) == number + 1
        assert len(test) == min(round(fraction * (number + 1)), number)
        assert before is None or len(before ^ (test - {f"ant/{number}.jpg"})) <= 1
        before = test


def test_samples_mix_classes_and_do_not_depend_on_the_disk(tmp_path):
    fill(tmp_path / "a" / "train", 30)
    for name in reversed(COLOURS):
        fill(tmp_path / "b" / "train", 30, [name])
    one, two = (samples(tmp_path / folder, 7)["train"] for folder in ("a", "b"))
    assert one == two
    assert {label for _, label in one[:15]} == {0, 1, 2}


def test_colour_and_size_are_options(tmp_path):
    fill(tmp_path, 5)
    block = read("folder", tmp_path, 100, {"size": 8, "colour": "grey"}).units[0].read()
    assert block.inputs[0].shape[1:] == (1, 8, 8)
    with pytest.raises(UserError, match=r"\.png: 9 x 9 pixels instead of 8 x 8"):
        samples(tmp_path, resize="none")


def test_a_broken_image_is_named_or_left_out_and_counted(tmp_path):
    fill(tmp_path / "train", 3)
    (tmp_path / "train" / "bee" / "broken.jpg").write_bytes(b"no image")
    with pytest.raises(UserError, match=r"train/bee/broken\.jpg: not a decodable image .*on_corrupt: skip"):
        samples(tmp_path)
    block = read("folder", tmp_path, 100, {"size": 8, "on_corrupt": "skip"}).units[0].read()
    assert len(block.labels) == 9
    assert block.skipped[0].startswith("train/bee/broken.jpg: ")


def test_nothing_but_broken_images_is_an_error_even_when_skipping(tmp_path):
    for name in ("ant", "bee"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "broken.jpg").write_bytes(b"no image")
    (unit,) = read("folder", tmp_path, 100, {"on_corrupt": "skip"}).units
    with pytest.raises(UserError, match=r"none of 2 images can be used \(.../broken\.jpg: not a decodable"):
        unit.read()


def test_suffixes_in_capitals_and_names_that_are_no_utf8(tmp_path):
    fill(tmp_path, 2)
    (tmp_path / "ant" / "sub0" / "0.png").rename(tmp_path / "ant" / "0.PNG")
    (tmp_path / "ant" / "sub1" / "1.png").rename(tmp_path / "ant" / os.fsdecode(b"\xff.png"))
    assert len(samples(tmp_path)["train"]) == 6


NAMES = [(split, name) for split, names in SPLIT_NAMES.items() for name in names]


@pytest.mark.parametrize("change", [str.lower, str.capitalize, str.upper])
def test_the_usual_names_of_splits_in_any_case(tmp_path, change):
    for split, name in NAMES:
        names = {"train": "train", "validation": "val", "test": "test"} | {split: change(name)}
        for number, each in enumerate(names.values(), start=1):
            fill(tmp_path / name / each, number, ["ant", "bee"])
        assert sizes(tmp_path / name) == ({"train": 2, "validation": 4, "test": 6}, ("ant", "bee"))


def add_mac_files(folder):
    (folder / "__MACOSX" / "birds" / "train").mkdir(parents=True)
    (folder / "__MACOSX" / "birds" / "train" / "._0.png").write_bytes(b"\0")
    (folder / ".DS_Store").touch()
    (folder / "Thumbs.db").touch()


@pytest.mark.parametrize(
    "add", [lambda folder: None, lambda folder: (folder / "README").touch(), add_mac_files]
)
@pytest.mark.parametrize("top", ["", "birds", "birds/images"])
def test_a_top_folder_is_found_although_files_are_beside_it(tmp_path, add, top):
    """Before, README.txt beside the top folder made one class of train/ and test/."""
    source = tmp_path / "in"
    for split, count in (("train", 3), ("test", 1)):
        fill(source / top / split, count, ["ant", "bee"])
    add(source)
    found = ({"train": 6, "test": 2}, ("ant", "bee"))
    assert sizes(source) == found
    with zipfile.ZipFile(tmp_path / "birds.zip", "w") as archive:
        for file in source.rglob("*"):
            archive.write(file, file.relative_to(source))
    fetched = fetch(DatasetSpec(name="birds", reader="folder"), tmp_path / "raw", str(tmp_path / "birds.zip"))
    assert sizes(fetched.path) == found


def test_links_to_files_and_folders_are_followed(tmp_path):
    fill(tmp_path / "data" / "train", 3, ["ant", "bee"])
    fill(tmp_path / "elsewhere", 4, ["x"])
    draw(tmp_path / "other.png")
    (tmp_path / "data" / "train" / "cat").symlink_to(tmp_path / "elsewhere" / "x")
    (tmp_path / "data" / "train" / "ant" / "more.png").symlink_to(tmp_path / "other.png")
    (tmp_path / "data" / "Test").symlink_to(tmp_path / "data" / "train")
    assert sizes(tmp_path / "data") == ({"train": 11, "test": 11}, ("ant", "bee", "cat"))


LOOP = r"loop.*: a link to a folder that contains the link; remove the link"
# what: (classes by folder, empty folders, link and its target, text of the error)
REFUSED = {
    "images without a class": ({}, [], ("train/1.png", "../one.png"), f"train: no folders of images found; {LAYOUT}"),
    "no training images": ({"test": COLOURS}, [], (), f"the folders test are not a set of splits; {LAYOUT}"),
    "two validations": (
        {"train": COLOURS, "val": COLOURS, "validation": COLOURS}, [], (),
        f"the folders train and val and validation are not a set of splits; {LAYOUT}",
    ),
    "two cases": ({"train": COLOURS, "Train": COLOURS}, [], (), "are not a set of splits"),
    "two names": ({"training": COLOURS, "train": COLOURS}, [], (), "are not a set of splits"),
    "dev and valid": ({"train": COLOURS, "valid": COLOURS, "dev": COLOURS}, [], (), "are not a set of splits"),
    "an empty class": ({"": COLOURS}, ["dog"], (), f"dog: no image found .*{LAYOUT[9:]}"),
    "an empty class in train": ({"train": COLOURS}, ["train/dog"], (), "train/dog: no image found"),
    "an empty class in test": ({"train": COLOURS}, ["test/ant"], (), "test/ant: no image found"),
    "a class of the test alone": ({"train": COLOURS, "test": ["eel"]}, [], (), "test: the class eel does not exist in train"),
    "a flat validation": (
        {"train": COLOURS}, [], ("val/1.png", "../one.png"), "val: 1 images, but no folder of a class; sort images into .*val/<class>/",
    ),
    "a flat test": ({"train": COLOURS, "val": COLOURS}, [], ("test/1.png", "../one.png"), "test: 1 images, but no folder of a class"),
    "an empty validation": ({"train": COLOURS}, ["val"], (), "val: empty, no folder of a class; .*or remove the folder"),
    "a class that is named as a split": (
        {"": ["car", "plane"], "train": ["diesel", "steam"]}, [], (),
        "the folder train is taken for a split because of its name, but car, plane beside it have images, too; .*rename it, such as class-train",
    ),
    "one class in train": ({"train": ["ant"]}, [], (), rf"only one class of images found \(ant\); {LAYOUT}"),
    "splits in classes": (
        {"ant": ["Train", "Test"], "bee": ["Train", "Test"]}, [], (),
        f"ant: folders of splits inside the folder of a class; {LAYOUT}",
    ),
    **{f"a loop to {target}": ({"train": COLOURS}, [], (f"{place}/loop", target), LOOP)
       for place in ("train/ant", "train/ant/sub0") for target in ("", "train", "train/ant")},
    "a folder of itself": ({}, [], ("loop", ""), "loop: a link to a folder that contains the link"),
    "a link to nothing": ({"": COLOURS}, [], ("ant/gone.png", "nowhere"), "the link leads to no file"),
    "a link to itself": ({"": COLOURS}, [], ("ant/gone.png", "ant/gone.png"), "cannot read"),
}  # fmt: skip


@pytest.mark.parametrize(("folders", "empty", "link", "message"), REFUSED.values(), ids=REFUSED)
def test_a_layout_that_is_not_understood_is_refused(tmp_path, folders, empty, link, message):
    source = tmp_path / "in"
    draw(tmp_path / "one.png")
    source.mkdir()
    for folder, classes in folders.items():
        fill(source / folder, 2, classes)
    for folder in empty:
        (source / folder).mkdir(parents=True)
        (source / folder / "list.txt").touch()
    if link:
        (source / link[0]).parent.mkdir(parents=True, exist_ok=True)
        (source / link[0]).symlink_to(source / link[1])
    with pytest.raises(UserError, match=message):
        read("folder", source, 9, {"size": 8})


def test_skipped_files_are_counted_in_one_line_and_no_line_if_none_is_skipped(tmp_path, capsys):
    fill(tmp_path / "train", 3, ["ant", "bee"])
    read("folder", tmp_path, 4, {"size": 8})
    assert capsys.readouterr().err == ""
    fill(tmp_path / "extra", 5, ["ant", "bee"])
    # What is not used cannot be wrong.
    (tmp_path / "extra" / "loop").symlink_to(tmp_path)
    (tmp_path / "extra" / "ant" / "gone.png").symlink_to(tmp_path / "nowhere")
    add_mac_files(tmp_path)
    for name in ("ant", "bee"):
        (tmp_path / "train" / name / "README.txt").write_text("mine")
    for name in ("train/ant/.hidden.png", "train/.cache/x.png", "train/alone.png", "cover.png"):
        draw(tmp_path / name)
    os.mkfifo(tmp_path / "train" / "bee" / "pipe.png")
    contents = read("folder", tmp_path, 4, {"size": 8})
    assert sum(map(len, [unit.read().labels for unit in contents.units])) == 6
    assert capsys.readouterr().err == (
        f"{tmp_path}: skipped files: 5 hidden, 11 in the folder extra beside the splits, 1 neither files nor folders, "
        "2 outside the folders of the classes, 2 with other suffixes\n"
    )
    assert contents.notes[0].startswith("skipped files: 5 hidden, 11 in the folder extra beside the splits")


def test_unsorted_images_of_a_split_are_no_class(tmp_path):
    """Tiny ImageNet has its validation and test images in `val/images` and `test/images`."""
    for name in ("train/ant/images/a", "train/bee/images/b", "val/images/c", "test/images/d"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        draw(tmp_path / f"{name}.png")
    said = f"sort them into {tmp_path}/(val|test)/<class>/, or leave out the folder (val|test)"
    with pytest.raises(UserError, match=f"the class images does not exist in train, nor any .*{said}"):
        read("folder", tmp_path, 4, {"size": 8})


def test_an_archive_inside_of_an_archive_is_named(tmp_path):
    (tmp_path / "train.zip").touch()
    with pytest.raises(UserError, match=r"no folders of images found; it has the archive train.zip"):
        read("folder", tmp_path, 4, {"size": 8})


@pytest.mark.parametrize(
    "names",
    [("seg_train", "seg_test"), ("train_images", "val_images"), ("training_data", "testing_data"), ("Train2017", "Test2017"),
     ("BirdsTrain", "BirdsTest"), ("train", "test_images")],
)  # fmt: skip
def test_splits_by_a_word_of_their_names(tmp_path, names):
    train, test = names
    fill(tmp_path / train, 5)
    fill(tmp_path / test / test, 2)  # Kaggle's archives repeat the name
    draw(tmp_path / "seg_pred" / "1.png")  # without labels
    assert sizes(tmp_path) == ({"train": 15, "test": 6}, ("ant", "bee", "cat"))
    assert {split: len(items) for split, items in samples(tmp_path).items()} == {"train": 15, "test": 6}


def test_words_of_splits_are_classes_beside_other_classes(tmp_path):
    for name in ("bullet_train", "test_tube", "car", "dog"):
        draw(tmp_path / name / "1.png")
    assert sizes(tmp_path)[1] == ("bullet_train", "car", "dog", "test_tube")


@pytest.mark.parametrize("names", [("color", "gray"), ("fold1", "fold2"), ("imagesTr", "imagesTs")])
def test_repeated_subfolders_are_asked(tmp_path, names):
    for name in names:
        fill(tmp_path / name, 2)
    with pytest.raises(UserError, match=rf"{names[0]}, {names[1]} have the same subfolders \(ant, bee, cat"):
        sizes(tmp_path)
    given = {"train": names[0], "test": names[1]}
    assert {split: len(items) for split, items in samples(tmp_path, splits=given).items()} == dict.fromkeys(
        given, 6
    )
    assert read("folder", tmp_path, 9, {"splits": given}).class_names == ("ant", "bee", "cat")
    assert read("folder", tmp_path, 9, {"splits": {}}).class_names == names


def test_flat_folders_of_splits_may_be_called_classes(tmp_path):
    for name in ("train_images", "test_images"):
        draw(tmp_path / name / "1.png")
    assert ImageTree.of(tmp_path, {}).classes == ("test_images", "train_images")
    with pytest.raises(UserError, match=r"data.reader.splits.train: no folder no in .*; correct the name"):
        ImageTree.of(tmp_path, {"train": "no"})


def gray(path, levels):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(levels).save(path)


def test_images_of_sixteen_bits_keep_their_levels(tmp_path, capsys):
    levels = np.arange(64, dtype=np.uint16).reshape(8, 8) * 12
    for number, name in itertools.product(range(3), ("a", "b")):
        gray(tmp_path / name / f"{number}.tif", levels + number)
    gray(tmp_path / "a" / "eight.png", np.full((8, 8), 255, np.uint8))
    contents = read("folder", tmp_path, 100, {"size": 8, "resize": "none", "colour": "grey"})
    found = np.concatenate([unit.read().inputs[0] for unit in contents.units])
    assert found.dtype == np.float32
    levels = {*(levels[None] + [[[0]], [[1]], [[2]]]).ravel(), 65_535}
    assert {*np.rint(found.astype(np.float64) * 65_535).ravel()} == levels
    assert "images of 16 bits are stored as float32" in capsys.readouterr().err


def test_an_image_of_sixteen_bits_among_bytes_is_named(tmp_path):
    fill(tmp_path, 4)
    contents = read("folder", tmp_path, 100, {"size": 9})
    gray(contents.units[0].files[-1], np.zeros((9, 9), np.uint16))
    with pytest.raises(UserError, match="16 bits per pixel among images of 8 bits; convert it to 8 bits"):
        contents.units[0].read()


def test_enlarged_images_are_named(tmp_path):
    fill(tmp_path)
    [note] = [note for note in read("folder", tmp_path, 9, {}).notes if "enlarged" in note]
    assert note.endswith("at most 9 pixels, but data.reader.size is 224; set data.reader.size: 9")
    assert read("folder", tmp_path, 9, {"size": 9}).notes == ()


def test_a_class_without_a_test_image_is_named(tmp_path):
    fill(tmp_path, 9)
    gray(tmp_path / "rare" / "only.png", np.zeros((9, 9), np.uint8))
    assert "no test image has the class rare; add images" in read("folder", tmp_path, 100, {"size": 9}).notes


def test_one_name_of_a_class_in_two_forms_is_one_class(tmp_path):
    """Macs write é as two characters, other systems as one."""
    fill(tmp_path / "train", 3, [normalize("NFD", "Café"), "Thé"])
    fill(tmp_path / "test", 2, ["Café", normalize("NFD", "Thé")])
    assert sizes(tmp_path) == ({"train": 6, "test": 4}, ("Café", "Thé"))
    assert {label for _, label in samples(tmp_path)["test"]} == {0, 1}


def test_a_class_that_train_spells_otherwise_is_named_with_it(tmp_path):
    fill(tmp_path / "train", 2, ["Cat", "Dog"])
    fill(tmp_path / "test", 2, ["cat", "dog"])
    with pytest.raises(UserError, match="the class cat does not exist in train, but Cat; write the name"):
        ImageTree.of(tmp_path)


def test_masks_beside_images_are_questioned(tmp_path):
    fill(tmp_path, 2, ["images", "masks"])
    (note,) = read("folder", tmp_path, 9, {"size": 9, "test_fraction": 0.4}).notes
    assert note.startswith("the class masks may be the targets of the other images, not a class")
