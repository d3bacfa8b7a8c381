"""Evaluations, metrics of nodes and counts of real trainings equal those of a plain perceptron in NumPy."""

import json
import math

import h5py
import numpy as np
import pandas as pd
import pytest
from helpers.training_here import CASES
from safetensors.numpy import load_file

SHAPES = {"1.0.weight": (16, 64), "1.0.bias": (16,), "2.weight": (10, 16), "2.bias": (10,)}
PARAMETERS = sum(map(math.prod, SHAPES.values()))
NODES, EPOCHS = 3, 2
FLOAT32 = 2e-6  # relative error of sums in single precision


def samples(folder, split):
    """Return the features, divided by 16, and the labels of a split of the digits."""
    [shard] = folder.glob(f"data/digits/*/{split}-*.h5")
    with h5py.File(shard) as file:
        return file["features"][:].reshape(-1, 64) / 16, file["labels"][:].astype(int)


def scores(tensors, features):
    hidden = np.maximum(features @ tensors["1.0.weight"].T + tensors["1.0.bias"], 0)
    return hidden @ tensors["2.weight"].T + tensors["2.bias"]


def measures(tensors, features, labels):
    """Return loss, accuracy and confusion matrix of a model, in double precision."""
    found = scores({name: each.astype(float) for name, each in tensors.items()}, features)
    shifted = found - found.max(1, keepdims=True)
    loss = (np.log(np.exp(shifted).sum(1)) - shifted[np.arange(len(labels)), labels]).mean()
    confusion = np.zeros((10, 10), int)
    np.add.at(confusion, (labels, found.argmax(1)), 1)
    return loss, (found.argmax(1) == labels).mean(), confusion.tolist()


@pytest.mark.parametrize("case", CASES)
def test_evaluations_equal_those_of_a_plain_perceptron(workspace, case):
    job = workspace / f"results/t/{case}/seed-0"
    evaluation = json.loads((job / "evaluation.json").read_text())
    features, labels = samples(workspace, "test")
    loss, accuracy, confusion = measures(load_file(job / "model.safetensors"), features, labels)
    assert evaluation["samples"] == len(labels)
    assert evaluation["loss"] == pytest.approx(loss, rel=FLOAT32)
    assert (evaluation["accuracy"], evaluation["confusion"]) == (accuracy, confusion)
    with np.load(job / "sample_metrics.npz") as values:
        assert values["accuracy"].mean() == pytest.approx(accuracy)
        assert values["loss"].mean() == pytest.approx(loss, rel=FLOAT32)
    if (
        case == "allreduce"
    ):  # the last validation is of the published weights, the first one before the first step
        validations, history = (pd.read_csv(job / f"{name}.csv") for name in ("validations", "history"))
        features, labels = samples(workspace, "train")
        with np.load(job / "partition.npz") as partition:
            held = partition["validation"]
        loss, accuracy, _ = measures(load_file(job / "model.safetensors"), features[held], labels[held])
        assert history["val_loss"].iloc[-1] == pytest.approx(loss, rel=FLOAT32)
        assert history["val_accuracy"].iloc[-1] == accuracy
        assert validations["step"].iloc[0] == 0
        assert validations["val_loss"].iloc[0] > history["val_loss"].iloc[0]


def test_metrics_and_distances_of_the_nodes_equal_those_of_their_checkpoints(workspace):
    job = workspace / "results/t/dsgd/seed-0"
    last = max((job / "state/checkpoints").glob("????????"))
    vectors = np.array(
        [load_file(last / f"rank-{rank}.safetensors")["theta"] for rank in range(NODES)], float
    )
    row = pd.read_csv(job / "history.csv").iloc[-1]
    assert row["consensus_error"] == pytest.approx(
        np.linalg.norm(vectors - vectors.mean(0), axis=1).mean(), rel=1e-5
    )
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    distance = np.linalg.norm(unit - unit.mean(0), axis=1).mean()
    assert row["consensus_error_normalised"] == pytest.approx(distance, rel=1e-4)
    features, labels = samples(workspace, "train")
    with np.load(job / "partition.npz") as partition:
        held = partition["validation"]
    places = np.cumsum([0, *map(math.prod, SHAPES.values())])
    found = []
    for vector in vectors:
        parts = zip(SHAPES.items(), places, places[1:], strict=False)
        tensors = {name: vector[start:end].reshape(shape) for (name, shape), start, end in parts}
        found.append(measures(tensors, features[held], labels[held])[:2])
    nodes = pd.read_csv(job / "nodes.csv")
    nodes = nodes[nodes["epoch"] == EPOCHS]
    for number, name in enumerate(("loss", "accuracy")):
        values = [each[number] for each in found]
        assert nodes[name].to_list() == pytest.approx(values, rel=1e-5)
        ends = [row[f"val_{name}{end}"] for end in ("", "_min", "_max")]
        assert ends == pytest.approx([np.mean(values), min(values), max(values)], rel=1e-5)


def test_counts_of_passes_and_messages_in_closed_form(workspace):
    """Each node of a path sends its parameters to its neighbors in every step."""
    job = workspace / "results/t/dsgd/seed-0"
    summary = json.loads((job / "summary.json").read_text())
    sent = {(a, b): (messages, volume) for a, b, messages, volume in summary["edges"]}
    pairs = [(0, 1), (1, 0), (1, 2), (2, 1)]
    assert sent == dict.fromkeys(pairs, (summary["steps"], summary["steps"] * 4 * PARAMETERS))
    # Metropolis weights of a path: each edge has a third; the eigenvalues are 1, 2/3 and 0.
    assert summary["spectral_gap"] == pytest.approx(1 / 3, rel=1e-12)
    assert pd.read_csv(job / "history.csv")["passes"].to_list() == [1, 2]
