"""The description of a store: samples, classes, and workers of a run."""

import re
from dataclasses import replace

import numpy as np
from helpers.synthetic_store import handmade

from nnlo_lib.data.describe import describe

PIXELS = np.zeros((7, 3, 2, 2), np.uint8)
LABELS = np.array([0, 2, 2, 1, 2, 0, 2])
SPLITS = {"train": (PIXELS, LABELS), "test": (PIXELS[:2], LABELS[:2])}


def rows(text):
    """Split each line into words, for comparison with handwritten tables."""
    return [line.split() for line in text.splitlines()]


def test_facts(tmp_path):
    skipped = {"train-00000-of-00004.npz": 3, "train-00002-of-00004.npz": 1}
    manifest = handmade(tmp_path, SPLITS, shard=2, skipped=skipped, dataset="birds")
    column = replace(manifest.inputs[0], mean=(51.0, 102.0, 255.0), std=(25.5, 0.0, 127.5))
    text = describe(replace(manifest, inputs=(column,)), {})
    size = sum(path.stat().st_size for path in tmp_path.glob("*.npz"))
    assert text.splitlines()[:6] == [
        "data set  birds",
        "samples   train 7, test 2",
        f"store     {tmp_path}: npz, {size / 1000:.2f} kB in 5 shards",
        "input     features: 3 x 2 x 2, uint8, mean 0.2 0.4 1, deviation 0.1 0 0.5 (in 0..1: bytes / 255)",
        "labels    labels: one number, int64, 3 classes",
        "skipped   corrupt records: 3 in train-00000-of-00004.npz, 1 in train-00002-of-00004.npz",
    ]


def test_each_class_is_counted_in_each_split(tmp_path):
    manifest = handmade(tmp_path, SPLITS, class_names=("wren", "great tit", "owl"))
    table = rows(describe(manifest, {}))[-5:]
    assert table == [
        ["class", "name", "train", "test"],
        ["0", "wren", "2", "1"],
        ["1", "great", "tit", "1", "."],
        ["2", "owl", "4", "1"],
        ["training", "samples", "per", "class:", "1", "to", "4,", "median", "2"],
    ]


def test_classes_without_a_training_sample_are_named(tmp_path):
    manifest = handmade(tmp_path, {"train": (PIXELS, np.array([0, 1, 3, 3, 1, 0, 5]))})
    assert "note: classes without a training sample: 2, 4" in describe(manifest, {}).splitlines()
    assert "note: " not in describe(handmade(tmp_path / "whole", SPLITS), {})


def test_classes_counted_from_one_are_classes_from_zero(tmp_path):
    labels = LABELS.reshape(-1, 1).astype(np.int16) + 1
    manifest = handmade(tmp_path, {"train": (PIXELS, labels)}, classes=3, first_class=1)
    assert ["2", "4"] in rows(describe(manifest, {}))


def test_workers_and_what_is_held_back(tmp_path):
    manifest = handmade(tmp_path, SPLITS)
    parts = {"shared": [np.arange(5)], "own": [np.array([0, 1, 2]), np.array([3, 4])]}
    *_, shared, own = describe(manifest, parts).split("\n\n")
    assert shared.startswith("run shared: 5 training samples, 2 validation samples; all workers share")
    three = SPLITS | {"validation": tuple(each[:3] for each in SPLITS["train"])}
    *_, split = describe(handmade(tmp_path / "split", three), {"a": [np.arange(7)]}).split("\n\n")
    assert "7 training samples, 3 validation samples" in split
    assert own.startswith("run own: 5 training samples, 2 validation samples; each of 2 workers has its own")
    assert rows(own)[1:] == [
        ["worker", "samples", "classes", "0", "1", "2"],
        ["0", "3", "2", "1", ".", "2"],
        ["1", "2", "2", ".", "1", "1"],
        ["classes", "per", "worker:", "2"],
        ["samples", "per", "worker:", "2", "to", "3,", "median", "2"],
    ]


def test_a_thousand_classes_and_workers_fit_on_a_page(tmp_path):
    labels = np.arange(4000) % 1000
    names = tuple(
        f"n{number:08d} a rather long name of an animal, with all its synonyms" for number in range(1000)
    )
    manifest = handmade(tmp_path, {"train": (np.zeros((4000, 1, 1, 1), np.uint8), labels)}, class_names=names)
    parts = [np.concatenate([np.flatnonzero(labels == number), [1500 + number]]) for number in range(500)]
    text = describe(manifest, {"own": parts})
    assert len(text.splitlines()) < 70
    assert max(len(line) for line in text.splitlines()) <= 130
    assert re.search(r"^ +0 +n00000000 a rather long .* +4$", text, re.MULTILINE)
    assert re.search(r"^ +999 +n00000999 a rather long .* +4$", text, re.MULTILINE)
    assert re.search(r"^ +499 +5 +2 +n00000499 a rather .* 80%$", text, re.MULTILINE)
    assert "n00000500 a" not in text


def test_labels_that_are_no_classes(tmp_path):
    targets = np.array([[0.5, -1.0]] * 6 + [[2.0, 0.0]], np.float32)
    manifest = handmade(tmp_path, {"train": (np.zeros((7, 54), np.float32), targets)})
    text = describe(manifest, {"own": [np.arange(3), np.arange(3, 7)]})
    assert "labels of train: -1 to 2, mean -0.07143" in text
    assert "input     features: (54,), float32\n" in text
    assert text.endswith("each of 2 workers has its own\nsamples per worker: 3 to 4, median 4")
