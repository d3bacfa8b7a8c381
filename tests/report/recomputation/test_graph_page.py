"""The page of decentralized algorithms equals what its raw files say: a graph of four nodes, each with its own model."""

import math

import numpy as np
import pytest
from helpers.recomputation.dense import accuracy, cross_entropy, held_back, outputs, samples
from helpers.recomputation.experiment import audited_experiment
from helpers.recomputation.page_tests import ExperimentPageTests
from helpers.recomputation.raw import read_csv
from helpers.recomputation.tensors import read_tensors

# The first test of the module makes the experiment.
pytestmark = [pytest.mark.processes, pytest.mark.timeout(1200)]

SETTINGS = {
    "name": "graph",
    "data": {"dataset": "digits", "validation": 0.2, "partition": {"name": "dirichlet", "alpha": 0.5}},
    "model": {"name": "simplemlp", "args": {"hidden": 12, "layers": 1}},
    "train": {"epochs": 3, "batch_size": 40, "optimizer": {"name": "sgd", "lr": 0.1}},
    "topology": {"name": "cycle"},
    "seeds": [1],
    "runs": {
        "dsgd": {"algorithm": {"name": "dsgd"}, "parallel": {"ranks": 4}},
        "dinno": {
            "algorithm": {"name": "dinno", "rho": 0.3, "primal_iterations": 2},
            "parallel": {"ranks": 4, "transport": "simulated"},
        },
        "packed": {
            "algorithm": {"name": "choco_sgd"},
            "compression": {"name": "top_k", "fraction": 0.25},
            "parallel": {"ranks": 4, "transport": "simulated"},
        },
    },
}
SHAPES = {"1.0.weight": (12, 64), "1.0.bias": (12,), "2.weight": (10, 12), "2.bias": (10,)}
NODES, NEIGHBORS = 4, 2
FLOAT32 = 2e-6  # relative error of sums in single precision


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    return audited_experiment(tmp_path_factory.mktemp("graph"), SETTINGS)


class TestPage(ExperimentPageTests):
    """The page equals its raw files."""


def test_evaluations_equal_those_of_the_averaged_model(page):
    for job in page.raw.jobs:
        features, labels = samples(job, "test")
        scores = outputs(job, features / 16)
        assert job.evaluation["loss"] == pytest.approx(cross_entropy(scores, labels), rel=FLOAT32)
        assert job.evaluation["accuracy"] == accuracy(scores, labels)


def test_history_summarizes_the_models_of_the_nodes(page):
    for job in page.raw.jobs:
        nodes = read_csv(job.folder / "nodes.csv")
        for row in job.history:
            values = [each["accuracy"] for each in nodes if each["epoch"] == row["epoch"]]
            assert len(values) == NODES
            assert row["val_accuracy"] == pytest.approx(sum(values) / NODES, rel=1e-12)
            assert (row["val_accuracy_min"], row["val_accuracy_max"]) == (min(values), max(values))


def node_vectors(job):
    """Return the parameters of each node in the last checkpoint, (nodes, parameters)."""
    *_, last = sorted((job.folder / "state/checkpoints").glob("????????"))
    files = [last / f"rank-{rank}.safetensors" for rank in range(NODES)]
    return np.array([read_tensors(file, ["theta"])["theta"] for file in files])


def node_scores(vector, features):
    places = np.cumsum([0, *map(math.prod, SHAPES.values())])
    first, shift, second, last = (
        vector[start:end].reshape(shape)
        for start, end, shape in zip(places, places[1:], SHAPES.values(), strict=False)
    )
    return np.maximum(features @ first.T + shift, 0) @ second.T + last


def test_distances_and_metrics_of_the_nodes_equal_those_of_their_checkpoints(page):
    for job in page.raw.jobs:
        vectors, last = node_vectors(job), job.history[-1]
        distances = np.linalg.norm(vectors - vectors.mean(0), axis=1)
        assert last["consensus_error"] == pytest.approx(distances.mean(), rel=1e-5)
        unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        normalized = np.linalg.norm(unit - unit.mean(0), axis=1).mean()
        assert last["consensus_error_normalised"] == pytest.approx(normalized, rel=1e-4)
        features, labels = held_back(job)
        found = [accuracy(node_scores(vector, features / 16), labels) for vector in vectors]
        ends = [last[f"val_accuracy{end}"] for end in ("", "_min", "_max")]
        assert ends == pytest.approx([sum(found) / NODES, min(found), max(found)], abs=1e-12)


def test_spectral_gap_of_a_cycle(page):
    # Metropolis weights give each node and its neighbors a third.
    eigenvalues = sorted(abs((1 + 2 * math.cos(2 * math.pi * k / NODES)) / 3) for k in range(NODES))
    for job in page.raw.jobs:
        assert job.summary["spectral_gap"] == pytest.approx(1 - eigenvalues[-2], rel=1e-12)


def test_bytes_between_neighbors_in_closed_form(page):
    size = 4 * sum(map(math.prod, SHAPES.values()))
    kept = 8 * math.ceil(0.25 * size / 4)  # index and value of each kept number
    for run, each in (("dsgd", size), ("packed", kept), ("dinno", size)):
        for job in page.raw.runs[run]:
            steps = job.summary["steps"]
            rounds = math.ceil(steps / 2) if run == "dinno" else steps
            sent = {(a, b): (messages, volume) for a, b, messages, volume in job.summary["edges"]}
            cycle = {(node, (node + way) % NODES) for node in range(NODES) for way in (1, -1)}
            assert sent == dict.fromkeys(cycle, (rounds, rounds * each)), run
