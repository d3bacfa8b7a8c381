"""The DAG from source files to a trained model: ImageNet's TFRecords, images, CIFAR, lists of HDF5 files."""

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
from helpers.repository_copy import environment

from nnlo_lib.experiment.load import load_experiment
from nnlo_lib.workflow.plan import Plan

ALONE = {"alone": {"parallel": {"ranks": 1}}}


def store_of(checkout) -> str:
    """Return the folder of the only store of the experiment, as the workflow names it."""
    with contextlib.chdir(checkout.folder):
        (store,) = Plan.of(load_experiment("tiny.yaml")).stores.values()
    return str(store.folder)


def imagenet(checkout, source, **data):
    checkout.experiment(
        data={"dataset": "imagenet", "source": str(source), "format": "npz", "crop": 224, **data},
        model={"name": "simplemlp", "args": {"hidden": 4, "layers": 1}},
        train={"epochs": 1, "batch_size": 16},
        runs=ALONE,
    )


def test_each_tfrecord_file_is_a_job_and_a_killed_conversion_goes_on(checkout, shared_data):
    imagenet(checkout, shared_data / "imagenet_tfrecord")
    folder = store_of(checkout)
    one = f"{folder}/shards/train/train-00002-of-00004.json"
    part = checkout.snakemake(one)
    assert part.returncode == 0, part.stdout
    shard = checkout.folder / folder / "train/train-00002-of-00004.npz"
    made = shard.stat().st_mtime_ns
    whole = checkout.snakemake("stores")
    assert whole.returncode == 0, whole.stdout
    assert whole.stdout.count("convert shard train/train-0000") == 3
    assert shard.stat().st_mtime_ns == made
    with np.load(shard) as arrays:  # PyDTNN reads the shard the same way
        assert (arrays["x"].shape, arrays["x"].dtype) == ((16, 3, 227, 227), np.uint8)
        assert (arrays["y"].shape, arrays["y"].dtype) == ((16, 1), np.int16)
    manifest = json.loads((checkout.folder / folder / "manifest.json").read_text())
    assert {name: part["samples"] for name, part in manifest["splits"].items()} == {"train": 64, "test": 16}


@pytest.mark.slow
def test_imagenet_trains(checkout, shared_data):
    imagenet(checkout, shared_data / "imagenet_tfrecord", normalize="standard", augment={"flip": 0.5})
    run = checkout.snakemake()
    assert run.returncode == 0, run.stdout
    evaluation = json.loads((checkout.folder / "results/tiny/alone/seed-0/evaluation.json").read_text())
    assert (evaluation["split"], evaluation["samples"]) == ("test", 16)


def test_imagenet_of_full_size_is_planned_in_seconds(checkout, tmp_path):
    source = tmp_path / "tfrecords"
    source.mkdir()
    for split, count in (("train", 1024), ("validation", 128)):
        for index in range(count):
            (source / f"{split}-{index:05d}-of-{count:05d}").touch()
    imagenet(checkout, source)
    start = os.times()
    plan = checkout.snakemake("stores", "--dry-run", "--quiet", "rules")
    end = os.times()  # processor time, because other tests may run in parallel
    seconds = end.children_user + end.children_system - start.children_user - start.children_system
    assert plan.returncode == 0, plan.stdout
    assert "convert_shard       1152" in " ".join(plan.stdout.split("\n")) or "1152" in plan.stdout
    assert seconds < 10


def test_missing_tfrecords_are_named_before_anything_runs(checkout, tmp_path):
    source = tmp_path / "tfrecords"
    source.mkdir()
    (source / "train-00000-of-00002").touch()
    imagenet(checkout, source)
    plan = checkout.snakemake("--dry-run")
    assert plan.returncode != 0
    assert "train-00001-of-00002" in plan.stdout
    assert "Traceback" not in plan.stdout


@pytest.mark.parametrize("partition", ["iid", "by_class"])
def test_lists_of_hdf5_files_without_a_test_are_measured_on_what_was_held_back(checkout, tmp_path, partition):
    rng = np.random.default_rng(1)
    centers = rng.normal(size=(3, 6))
    for number in range(3):
        classes = rng.integers(0, 3, 40)
        with h5py.File(tmp_path / f"part{number}.h5", "w") as file:
            file["features"] = (centers[classes] + 0.1 * rng.normal(size=(40, 6))).astype(np.float32)
            file["labels"] = np.eye(3)[classes]
    (tmp_path / "train.txt").write_text("part0.h5\npart1.h5\npart2.h5\n")
    (checkout.folder / "mine.py").write_text(
        "from torch import nn\ndef build(shape, classes):\n    return nn.Linear(*shape, classes)\n"
    )
    checkout.experiment(
        data={
            "dataset": "blobs",
            "source": str(tmp_path),
            "reader": {"name": "arrays", "train": "train.txt"},
            "partition": {"name": partition},
            "normalize": "standard",
        },
        model={"name": "mine.py:build"},
        train={"epochs": 20, "batch_size": 8, "optimizer": {"name": "sgd", "lr": 0.1}},
        runs={"two": {"parallel": {"ranks": 2}}},
    )
    run = checkout.snakemake()
    assert run.returncode == 0, run.stdout
    job = checkout.folder / "results/tiny/two/seed-0"
    evaluation = json.loads((job / "evaluation.json").read_text())
    assert (evaluation["split"], evaluation["samples"]) == ("held back", 12)
    assert evaluation["accuracy"] > 0.9
    with np.load(job / "partition.npz") as saved:
        everyone = np.concatenate([saved[name] for name in saved])
    assert sorted(everyone) == list(range(120))
    shown = subprocess.run(
        [Path(sys.executable).with_name("nnlo"), "data", "tiny.yaml"],
        cwd=checkout.folder, env=environment(), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert shown.returncode == 0, shown.stderr
    assert "blobs" in shown.stdout


TWO_INPUTS = """
import torch
from torch import nn


class Two(nn.Module):
    def __init__(self, shapes, classes):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(*shape, classes) for shape in shapes)

    def forward(self, *inputs):
        return sum(layer(each) for layer, each in zip(self.layers, inputs, strict=True))


def build(shapes, classes):
    return Two(shapes, classes)
"""


def test_a_group_of_inputs_reaches_a_model_of_several_inputs(checkout, tmp_path):
    rng = np.random.default_rng(1)
    centers, classes = rng.normal(size=(3, 5)), rng.integers(0, 3, 90)
    with h5py.File(tmp_path / "all.h5", "w") as file:
        file["X/jets"] = (centers[classes] + 0.1 * rng.normal(size=(90, 5))).astype(np.float32)
        file["X/muons"] = rng.normal(size=(90, 2))
        file["Y"] = np.eye(3)[classes]
    (checkout.folder / "mine.py").write_text(TWO_INPUTS)
    reader = {"name": "arrays", "train": "all.h5", "test": "all.h5", "features": "X", "labels": "Y"}
    checkout.experiment(
        data={"dataset": "two", "source": str(tmp_path), "reader": reader},
        model={"name": "mine.py:build"},
        train={"epochs": 20, "batch_size": 8, "optimizer": {"name": "sgd", "lr": 0.1}},
        runs={"two": {"parallel": {"ranks": 2}}},
    )
    run = checkout.snakemake("results/tiny/two/seed-0/evaluation.json")
    assert run.returncode == 0, run.stdout
    evaluation = json.loads((checkout.folder / "results/tiny/two/seed-0/evaluation.json").read_text())
    assert evaluation["accuracy"] > 0.9


def blobs(folder, center):
    """Write features around `center`, labels of two kinds and one more feature."""
    rng = np.random.default_rng(1)
    with h5py.File(folder / "all.h5", "w") as file:
        file["features"] = rng.normal(center, 1, (90, 5)).astype(np.float32)
        file["labels"] = rng.integers(0, 3, 90)
        file["others"] = rng.integers(0, 2, 90)


def scaled(factor):
    return f"def scaled(x):\n    return x * {factor}\n"


EDITS = {
    "labels": lambda checkout, source, reader: reader.update(labels="others"),
    "adaptor": lambda checkout, source, reader: (checkout.folder / "adapt.py").write_text(scaled(2)),
    "files": lambda checkout, source, reader: blobs(source, 3),
}


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS)
def test_an_edit_of_the_data_trains_on_the_new_data(checkout, tmp_path, edit):
    """The store of `nnlo run` is found again by Snakemake, and not after an edit of what it was made of."""
    blobs(tmp_path, 0)
    (checkout.folder / "adapt.py").write_text(scaled(1))
    reader = {"name": "arrays", "train": "all.h5", "adaptor": "adapt.py:scaled"}
    settings = {
        "data": {"dataset": "blobs", "source": str(tmp_path), "reader": reader},
        "model": {"name": "perceptron"},
        "train": {"epochs": 1, "batch_size": 8},
        "runs": ALONE,
    }
    checkout.experiment(**settings)
    summary = checkout.folder / "results/tiny/alone/seed-0/summary.json"
    losses, stores = [], []
    for step in ("nnlo", "same", "edited"):
        if step == "edited":
            edit(checkout, tmp_path, reader)
            checkout.experiment(**settings)
        command = [Path(sys.executable).with_name("nnlo"), "run", "tiny.yaml"]
        done = (
            subprocess.run(command, cwd=checkout.folder, env=environment(), capture_output=True, text=True)
            if step == "nnlo"
            else checkout.snakemake("results/tiny/alone/seed-0/evaluation.json")
        )
        assert done.returncode == 0, done.stdout
        losses.append(json.loads(summary.read_text())["final"]["val_loss"])
        stores.append(store_of(checkout))
    assert stores[0] == stores[1] != stores[2]
    assert losses[0] == losses[1] != losses[2]
    listed = subprocess.run(
        [command[0], "data", "--stores"],
        cwd=checkout.folder,
        env=environment(),
        capture_output=True,
        text=True,
    )
    assert all(store in listed.stdout for store in stores)


def test_results_of_other_settings_are_not_adopted(checkout):
    """Between two starts of Snakemake, `nnlo run` trains the same job with another learning rate."""
    settings = {
        "runs": ALONE,
        "train": {"epochs": 1, "batch_size": 64, "optimizer": {"name": "sgd", "lr": 0.1}},
    }
    checkout.experiment(**settings)
    target, rates = "results/tiny/alone/seed-0/evaluation.json", []
    command = [Path(sys.executable).with_name("nnlo"), "run", "tiny.yaml", "--set", "train.optimizer.lr=0.3"]
    for step in ("snakemake", "nnlo", "snakemake", "snakemake"):
        if step == "nnlo":
            done = subprocess.run(
                command, cwd=checkout.folder, env=environment(), capture_output=True, text=True, check=False
            )
        else:
            done = checkout.snakemake(target)
        assert done.returncode == 0, done.stdout
        summary = json.loads((checkout.folder / "results/tiny/alone/seed-0/summary.json").read_text())
        rates.append(summary["config"]["train"]["optimizer"]["lr"])
    assert rates == [0.1, 0.3, 0.1, 0.1]
    assert "Nothing to be done" in done.stdout
