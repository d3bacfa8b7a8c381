"""Layouts of image folders as they are found in the wild: names of splits, top folders, links, other files."""

import itertools
import os
import zipfile

import pytest
from PIL import Image

from nnlo_lib.core.errors import UserError
from nnlo_lib.data.catalog import user_dataset
from nnlo_lib.data.fetch.fetch import fetch
from nnlo_lib.data.readers import read
from nnlo_lib.data.readers.image_tree import SPLIT_NAMES, ImageTree


def draw(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (9, 9), "red").save(path)


def fill(folder, count=2, classes=("ant", "bee")):
    for name, number in itertools.product(classes, range(count)):
        draw(folder / name / f"{number}.png")


def sizes(folder):
    tree = ImageTree.of(folder)
    return {split: len(images) for split, images in tree.splits.items()}, tree.classes


@pytest.mark.parametrize("change", [str.lower, str.capitalize, str.upper])
@pytest.mark.parametrize(
    ("split", "name"), [(split, name) for split, names in SPLIT_NAMES.items() for name in names]
)
def test_the_usual_names_of_splits_in_any_case(tmp_path, split, name, change):
    names = {"train": "train", "validation": "val", "test": "test"} | {split: change(name)}
    for number, each in enumerate(names.values(), start=1):
        fill(tmp_path / each, number)
    assert sizes(tmp_path) == ({"train": 2, "validation": 4, "test": 6}, ("ant", "bee"))


@pytest.mark.parametrize("pair", [("train", "Train"), ("training", "train"), ("valid", "dev")])
def test_two_folders_of_one_split_are_refused(tmp_path, pair):
    for name in {"train", *pair}:
        fill(tmp_path / name)
    with pytest.raises(UserError, match="are not a set of splits; expected <split>"):
        ImageTree.of(tmp_path)


def add_readme(folder):
    (folder / "README.txt").write_text("mine")


def add_mac_files(folder):
    (folder / "__MACOSX" / "birds" / "train").mkdir(parents=True)
    (folder / "__MACOSX" / "birds" / "train" / "._0.png").write_bytes(b"\0")
    (folder / ".DS_Store").touch()
    (folder / "Thumbs.db").touch()


def zipped(folder, path):
    with zipfile.ZipFile(path, "w") as archive:
        for file in folder.rglob("*"):
            archive.write(file, file.relative_to(folder))
    return path


@pytest.mark.parametrize("add", [lambda folder: None, add_readme, add_mac_files])
@pytest.mark.parametrize("top", ["", "birds", "birds/images"])
def test_a_top_folder_is_found_although_files_are_beside_it(tmp_path, add, top):
    """Before, README.txt beside the top folder made one class of train/ and test/."""
    fill(tmp_path / "in" / top / "train", 3)
    fill(tmp_path / "in" / top / "test", 1)
    add(tmp_path / "in")
    found = ({"train": 6, "test": 2}, ("ant", "bee"))
    assert sizes(tmp_path / "in") == found
    archive = zipped(tmp_path / "in", tmp_path / "birds.zip")
    fetched = fetch(user_dataset("birds", "folder"), tmp_path / "raw", str(archive))
    assert sizes(fetched.path) == found


def test_a_top_folder_of_classes(tmp_path):
    fill(tmp_path / "birds", 3)
    add_readme(tmp_path)
    assert sizes(tmp_path) == ({"train": 6}, ("ant", "bee"))


@pytest.mark.parametrize("place", ["", "train"])
def test_one_class_is_refused(tmp_path, place):
    fill(tmp_path / place, classes=["ant"])
    with pytest.raises(UserError, match=r"only one class of images found \(ant\); expected <split>"):
        ImageTree.of(tmp_path)


def test_splits_inside_the_classes_are_refused(tmp_path):
    for name in ("ant", "bee"):
        fill(tmp_path / name, classes=["Train", "Test"])
    with pytest.raises(
        UserError, match="ant: folders of splits inside the folder of a class; expected <split>"
    ):
        ImageTree.of(tmp_path)


def test_links_to_files_and_folders_are_followed(tmp_path):
    fill(tmp_path / "data" / "train", 3)
    fill(tmp_path / "elsewhere", 4, ["x"])
    draw(tmp_path / "other.png")
    (tmp_path / "data" / "train" / "cat").symlink_to(tmp_path / "elsewhere" / "x")
    (tmp_path / "data" / "train" / "ant" / "more.png").symlink_to(tmp_path / "other.png")
    (tmp_path / "data" / "Test").symlink_to(tmp_path / "data" / "train")
    assert sizes(tmp_path / "data") == ({"train": 11, "test": 11}, ("ant", "bee", "cat"))


@pytest.mark.parametrize("place", ["train/ant/loop", "train/ant/deep/loop"])
@pytest.mark.parametrize("target", ["", "train", "train/ant"])
def test_loops_of_links_are_refused(tmp_path, place, target):
    fill(tmp_path / "train")
    (tmp_path / place).parent.mkdir(exist_ok=True)
    (tmp_path / place).symlink_to(tmp_path / target)
    with pytest.raises(
        UserError, match=r"loop.*: a link to a folder that contains the link; remove the link"
    ):
        ImageTree.of(tmp_path)


def test_a_folder_that_only_leads_to_itself(tmp_path):
    (tmp_path / "loop").symlink_to(tmp_path)
    with pytest.raises(UserError, match="loop: a link to a folder that contains the link"):
        ImageTree.of(tmp_path)


@pytest.mark.parametrize(
    ("target", "message"), [("nowhere", "the link leads to no file"), ("gone.png", "cannot read")]
)
def test_a_link_to_nothing_is_refused(tmp_path, target, message):
    fill(tmp_path)
    (tmp_path / "ant" / "gone.png").symlink_to(tmp_path / "ant" / target)
    with pytest.raises(UserError, match=message):
        ImageTree.of(tmp_path)


def test_what_is_skipped_is_said_once_with_counts(tmp_path, capsys):
    fill(tmp_path / "train", 3)
    fill(tmp_path / "extra", 5)
    # What is not used cannot be wrong.
    (tmp_path / "extra" / "loop").symlink_to(tmp_path)
    (tmp_path / "extra" / "ant" / "gone.png").symlink_to(tmp_path / "nowhere")
    add_mac_files(tmp_path)
    add_readme(tmp_path / "train" / "ant")
    add_readme(tmp_path / "train" / "bee")
    draw(tmp_path / "train" / "ant" / ".hidden.png")
    draw(tmp_path / "train" / ".cache" / "x.png")
    draw(tmp_path / "train" / "alone.png")
    draw(tmp_path / "cover.png")
    os.mkfifo(tmp_path / "train" / "bee" / "pipe.png")
    contents = read("folder", tmp_path, 4, {"size": 8})
    assert sum(map(len, [unit.read().labels for unit in contents.units])) == 6
    assert capsys.readouterr().err == (
        f"{tmp_path}: skipped files: 5 hidden, 11 in the folder extra beside the splits, 1 neither files nor folders, "
        "2 outside the folders of the classes, 2 with other suffixes\n"
    )


def test_nothing_skipped_is_not_mentioned(tmp_path, capsys):
    fill(tmp_path)
    read("folder", tmp_path, 4, {"size": 8})
    assert capsys.readouterr().err == ""
