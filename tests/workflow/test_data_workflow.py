"""The DAG from source files to a trained model: MNIST's and CIFAR's files, ImageNet's TFRecords, HDF5 files of the user."""

import contextlib
import os

import h5py
import numpy as np
import pytest

from nnlo_lib.experiment.load import load_experiment
from nnlo_lib.workflow.plan import Plan

pytestmark = pytest.mark.snakemake

ALONE = {"alone": {"parallel": {"ranks": 1}}}
SMALL = {"name": "simplemlp", "args": {"hidden": 4, "layers": 1}}


def store_of(clone, run):
    """Return the folder of a run's store, as the workflow names it."""
    with contextlib.chdir(clone.folder):
        return str(Plan.of(load_experiment("tiny.yaml")).store(run).folder)


def imagenet(source):
    return {"dataset": "imagenet", "source": str(source), "format": "npz", "crop": 224}


FEW = {
    "model": SMALL,
    "train": {"epochs": 1, "batch_size": 16, "steps_per_epoch": 2},
    "parallel": {"ranks": 1},
}


@pytest.mark.real
def test_files_of_mnist_and_cifar10_become_stores_and_trained_models(clone, shared_data):
    archive = str(shared_data / "cifar10/cifar-10-binary.tar.gz")
    runs = {
        "mnist": {"data": {"dataset": "mnist", "source": str(shared_data / "mnist")}},
        "cifar": {"data": {"dataset": "small", "source": archive, "reader": {"name": "cifar"}}},
    }
    clone.run(**FEW, name="images", runs=runs)
    found = {run: clone.evaluation(f"images/{run}/seed-0") for run in runs}
    samples = {run: (each["split"], each["samples"]) for run, each in found.items()}
    assert samples == {"mnist": ("test", 10_000), "cifar": ("test", 2000)}


@pytest.mark.exhaustive
def test_each_tfrecord_file_is_a_job_and_a_killed_conversion_goes_on(clone, shared_data):
    data = imagenet(shared_data / "imagenet_tfrecord") | {"normalize": "standard", "augment": {"flip": 0.5}}
    clone.experiment(**FEW, name="tfrecords", data=data, runs=ALONE)
    folder = store_of(clone, "alone")
    clone.run(f"{folder}/shards/train/train-00002-of-00004.json")
    shard = clone.folder / folder / "train/train-00002-of-00004.npz"
    converted = shard.stat().st_mtime_ns
    assert clone.run().count("convert shard train/train-0000") == 3
    assert shard.stat().st_mtime_ns == converted
    with np.load(shard) as arrays:  # PyDTNN reads the shard the same way
        assert (arrays["x"].shape, arrays["x"].dtype) == ((16, 3, 227, 227), np.uint8)
        assert (arrays["y"].shape, arrays["y"].dtype) == ((16, 1), np.int16)
    evaluation = clone.evaluation("tfrecords/alone/seed-0")
    assert (evaluation["split"], evaluation["samples"]) == ("test", 16)


@pytest.mark.exhaustive
def test_imagenet_of_full_size_is_planned_in_seconds(clone, tmp_path):
    for split, count in (("train", 1024), ("validation", 128)):
        for index in range(count):
            (tmp_path / f"{split}-{index:05d}-of-{count:05d}").touch()
    start = os.times()
    said = clone.run("stores", "--dry-run", "--quiet", "rules", name="full", data=imagenet(tmp_path))
    end = os.times()  # processor time, because other tests may run in parallel
    assert "1152" in said
    assert end.children_user + end.children_system - start.children_user - start.children_system < 30


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


@pytest.mark.exhaustive
def test_a_group_of_inputs_reaches_a_model_of_several_inputs(clone, tmp_path):
    rng = np.random.default_rng(1)
    centers, classes = rng.normal(size=(3, 5)), rng.integers(0, 3, 90)
    for split in ("train", "test"):
        with h5py.File(tmp_path / f"{split}.h5", "w") as file:
            file["X/jets"] = (centers[classes] + 0.1 * rng.normal(size=(90, 5))).astype(np.float32)
            file["X/muons"] = rng.normal(size=(90, 2))
            file["Y"] = np.eye(3)[classes]
    (clone.folder / "two.py").write_text(TWO_INPUTS)
    reader = {"name": "arrays", "train": "train.h5", "test": "test.h5", "features": "X", "labels": "Y"}
    clone.run(
        "results/group/two/seed-0/evaluation.json",
        name="group",
        data={"dataset": "group", "source": str(tmp_path), "reader": reader},
        model={"name": "two.py:build"},
        train={"epochs": 20, "batch_size": 8, "optimizer": {"name": "sgd", "lr": 0.1}},
        runs={"two": {"parallel": {"ranks": 2}}},
    )
    assert clone.evaluation("group/two/seed-0")["accuracy"] > 0.9
