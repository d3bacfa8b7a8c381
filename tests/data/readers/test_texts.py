"""Texts in one folder per class: numbers of words, order, what is left out, and an archive like that of IMDB."""

import csv
import tarfile
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import yaml
from helpers.training_here import run_here

from nnlo_lib.core.errors import UserError
from nnlo_lib.data.readers.texts import read, vocabulary, words_of

WORDS = ["plot", "actor", "scene", "it's", "the", "cut"]
OPINIONS = {"pos": "wonderful", "neg": "dull"}


def write(folder: Path, count: int = 20) -> Path:
    """Write reviews in the layout of IMDB: one word tells the class."""
    draw = np.random.default_rng(0)
    for name in ("train/neg", "train/pos", "train/unsup", "test/neg", "test/pos"):
        (folder / name).mkdir(parents=True)
        for number in range(count):
            words = [*draw.choice(WORDS, 5 + number % 7), OPINIONS.get(name.partition("/")[2], "so")]
            text = " ".join(draw.permutation(words)).capitalize() + ".<br />The end!"
            (folder / name / f"{number}_{number % 10}.txt").write_text(text)
    (folder / "train/labeledBow.feat").write_text("9 0:9\n")
    return folder


def blocks(folder, split, **options):
    contents = read(folder, 7, **options)
    return contents, [unit.read() for unit in contents.units if unit.split == split]


def test_words_are_lower_case_without_markup_and_punctuation():
    assert words_of("It's THE end.<br /><br />Or: l'été_2!") == ["it's", "the", "end", "or", "l'été", "2"]


def test_numbers_follow_the_frequency_in_the_training_texts(tmp_path):
    folder = write(tmp_path / "aclImdb")
    training = [path.read_text() for name in ("neg", "pos") for path in (folder / "train" / name).glob("*")]
    counts = Counter(word for text in training for word in words_of(text))
    ranked = sorted(counts, key=lambda each: (-counts[each], each))
    assert vocabulary(training, 1000) == {word: rank for rank, word in enumerate(ranked, 2)}
    contents, shards = blocks(tmp_path, "test", words=6, length=8)
    assert contents.class_names == ("neg", "pos")
    assert contents.notes == ("train/unsup: not read, because train or test has no such class",)
    known = vocabulary(training, 6)
    expected = set()
    for path in folder.glob("test/*/*.txt"):
        numbers = [known.get(word, 1) for word in words_of(path.read_text())][:8]
        expected.add((*numbers, *[0] * (8 - len(numbers)), ("neg", "pos").index(path.parent.name)))
    rows = np.concatenate([np.column_stack([shard.inputs[0], shard.labels]) for shard in shards])
    assert len(rows) == 40
    assert set(map(tuple, rows.tolist())) == expected
    assert set(shards[0].labels) == {0, 1}, "classes are mixed"


def test_an_edit_of_a_training_text_changes_the_numbers(tmp_path):
    folder = write(tmp_path)
    before = blocks(folder, "test", words=100)[1]
    for path in (folder / "train/pos").glob("*"):
        path.write_text("new " * 9 + path.read_text())
    after = blocks(folder, "test", words=100)[1]
    assert not np.array_equal(before[0].inputs[0], after[0].inputs[0])


def test_layouts_that_are_refused(tmp_path):
    for split in ("train", "test"):
        (tmp_path / split / "one").mkdir(parents=True)
        (tmp_path / split / "one/a.txt").write_text("a")
    with pytest.raises(UserError, match=r"1 classes have \.txt files"):
        read(tmp_path, 10)
    folder = write(tmp_path / "own")
    path = next((folder / "test/pos").glob("*.txt"))
    path.write_bytes(b"caf\xe9")
    with pytest.raises(UserError, match=f"{path.name}: no text in UTF-8"):
        blocks(folder, "test")


def test_the_lstm_of_theano_mpi_learns_on_an_archive_like_that_of_imdb(tmp_path):
    with tarfile.open(tmp_path / "reviews.tar.gz", "w:gz") as archive:
        archive.add(write(tmp_path / "written", count=60), "aclImdb")
    settings = {
        "name": "t",
        "data": {"dataset": "reviews", "source": "reviews.tar.gz", "reader": {"name": "texts", "words": 20, "length": 16}},
        "model": {"name": "lstm", "args": {"words": 20, "units": 8}},
        "train": {"epochs": 12, "batch_size": 8, "optimizer": {"name": "adam", "lr": 0.02}},
        "parallel": {"ranks": 1, "transport": "simulated"},
    }  # fmt: skip
    (tmp_path / "t.yaml").write_text(yaml.safe_dump(settings))
    done = run_here("t.yaml", folder=tmp_path)
    assert not done.returncode, done.stderr
    (history,) = tmp_path.glob("results/t/*/seed-0/history.csv")
    with history.open() as file:
        *_, last = csv.DictReader(file)
    assert float(last["val_accuracy"]) > 0.9
