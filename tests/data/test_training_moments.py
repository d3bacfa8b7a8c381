"""Inputs are normalized by the training samples alone, and the same constants reach evaluation and predictions."""

import json
import tempfile
from dataclasses import replace

import numpy as np
import pytest
from helpers.algorithm_trainings import manifest, measured
from helpers.synthetic_store import handmade
from helpers.training_process import StopAfter

from nnlo_lib.config import Experiment
from nnlo_lib.core.errors import UserError
from nnlo_lib.data import training_moments
from nnlo_lib.data.store.manifest import ArraySpec, DataManifest
from nnlo_lib.data.store.split import Split
from nnlo_lib.train.dataset import TrainingData
from nnlo_lib.train.evaluation.evaluate import evaluate_model, load_published_model, outputs_of
from nnlo_lib.train.rank import train_simulated
from nnlo_lib.train.rank_process import StopFlag
from nnlo_lib.train.task import Task
from nnlo_lib.workflow.plan import Plan

__all__ = ["manifest"]
FOLD = 48  # training samples of one of five folds of 60 samples


@pytest.fixture
def new_node(tmp_path, monkeypatch):
    """Return a function after which this process has the temporary folder of another node."""

    def move():
        monkeypatch.setattr(tempfile, "tempdir", folder := tempfile.mkdtemp(dir=tmp_path))
        return folder

    return move


@pytest.fixture(autouse=True)
def _own_node(new_node):
    """The moments of other tests, in the private folder of the user, must not be found."""
    new_node()


@pytest.fixture
def reads(monkeypatch):
    """Numbers of samples that were read, one for each call."""
    found, take = [], Split.take
    monkeypatch.setattr(
        Split, "take", lambda self, indices: found.append(len(indices)) or take(self, indices)
    )
    return found


def task(folder, path, fold=None, **data):
    settings = {
        "data": {"normalize": "standard", **data},
        "model": {"name": "simplemlp", "args": {"hidden": 4}},
        "train": {"epochs": 1, "batch_size": 100},
        "parallel": {"ranks": 2, "transport": "simulated"},
    }
    run = Plan.of(Experiment.model_validate(settings)).run("allreduce")
    return Task("t", "allreduce", run, 0, fold, 5 if fold is not None else 1, path, folder)


def constants(job):
    return TrainingData(job, 2).normalized_manifest.inputs


def store_with_drift(folder, held=None):
    """Write a store of 60 samples of three channels that drift; the samples `held` have other values."""
    drift = np.arange(60, dtype=np.float32)[:, None, None] / 10
    values = np.random.default_rng(0).normal(size=(60, 3, 2)).astype(np.float32) + drift
    if held is not None:
        values[held] += 100
    columns = (ArraySpec("features", (3, 2), "float32", (0.0,) * 3, (9.0,) * 3),)
    splits = {"train": (values, np.arange(60) % 2), "test": (values[:9], np.arange(9) % 2)}
    return values, handmade(folder, splits, shard=7, inputs=columns)


@pytest.fixture
def drift(tmp_path):
    """Return the path of the manifest of a store with drift."""
    return store_with_drift(tmp_path / "store")[1].folder / "manifest.json"


@pytest.mark.parametrize(("fold", "data"), [(0, {}), (3, {}), (None, {"validation": 0.25})])
def test_moments_are_of_the_training_samples_alone(tmp_path, fold, data):
    values, made = store_with_drift(tmp_path / "store")
    found = TrainingData(task(tmp_path / "run", made.folder / "manifest.json", fold, **data), 2)
    held = found.validation_set[1]
    train = np.delete(values.astype(np.float64), held, axis=0)
    [column] = found.normalized_manifest.inputs
    assert column.mean == pytest.approx(train.mean(axis=(0, 2)), rel=1e-12)
    assert column.std == pytest.approx(train.std(axis=(0, 2)), rel=1e-12)
    _, other = store_with_drift(tmp_path / "other", held)
    again = constants(task(tmp_path / "run", other.folder / "manifest.json", fold, **data))
    assert again == (column,), "held-out samples have no effect"


@pytest.mark.parametrize("data", [{"validation": 0.0}, {"validation": "test"}, {"normalize": "unit"}])
def test_without_held_out_samples_the_moments_of_the_store_are_used(tmp_path, drift, data):
    job = task(tmp_path / "run", drift, **data)
    assert not job.normalizes_training_samples
    assert constants(job) == DataManifest.load(drift).inputs


def damages(text):
    """Return damaged texts of a moments file; the last has another number, and is a moments file otherwise."""
    other = json.loads(text)
    other["moments"][0]["mean"][0] += 0.5
    return "", "[", "[]", "{}", text[:-9], json.dumps(other)


def test_samples_are_read_once_for_all_processes_of_a_node(tmp_path, drift, reads, new_node):
    node = new_node()
    first = constants(task(tmp_path / "run", drift, 0))
    assert constants(task(tmp_path / "again", drift, 0)) == first
    assert sum(reads) == FOLD
    [file] = (tmp_path / node).glob("nnlo-*/normalization/*.json")
    file.write_text("[")
    assert constants(task(tmp_path / "third", drift, 0)) == first
    assert sum(reads) == 2 * FOLD


def test_other_samples_are_read_although_the_run_folder_has_moments(tmp_path, drift, reads, new_node):
    """The fold, the fraction, and the store change; the constants are those of a new run folder."""
    other = store_with_drift(tmp_path / "other", [5, 6])[1].folder / "manifest.json"
    constants(task(tmp_path / "run", drift, 0))
    changes = ((drift, 3, {}), (drift, None, {"validation": 0.25}), (other, 0, {}))
    for number, (path, fold, data) in enumerate(changes):
        new_node()
        fresh = constants(task(tmp_path / f"fresh-{number}", path, fold, **data))
        count = sum(reads)
        new_node()
        assert constants(task(tmp_path / "run", path, fold, **data)) == fresh
        assert sum(reads) > count


def test_a_damaged_file_of_the_run_is_computed_again_and_named(tmp_path, drift, reads, new_node, capsys):
    job = task(tmp_path / "run", drift, 0)
    first, file = constants(job), job.paths.state.normalization
    intact = file.read_text()
    for damage in damages(intact):
        file.write_text(damage)
        new_node()
        count = sum(reads)
        assert constants(job) == first
        assert sum(reads) == count + FOLD
        assert file.read_text() == intact
        assert f"{file}: damaged, or of other samples" in capsys.readouterr().err
    assert [each.name for each in file.parent.iterdir()] == [file.name], "no temporary files stay"


def test_a_training_resumed_on_another_node_has_the_bits_of_an_uninterrupted_one(
    tmp_path, manifest, new_node, monkeypatch
):
    whole, parts = (task(tmp_path / name, manifest, 0) for name in ("whole", "parts"))
    assert train_simulated(whole, StopFlag())
    new_node()
    assert not train_simulated(parts, StopAfter(3))
    assert list(parts.paths.state.checkpoints.iterdir())
    new_node()
    monkeypatch.setattr(training_moments, "_computed", lambda *_: pytest.fail("read again"))
    assert train_simulated(parts, StopFlag())
    assert measured(parts) == measured(whole)


def test_a_training_of_an_earlier_version_is_not_resumed_with_other_moments(tmp_path, drift, monkeypatch):
    """The fingerprint differs from the one without the rule, but only where the moments differ."""
    for validation, same in ((0.0, True), (0.25, False)):
        job = task(tmp_path / "run", drift, validation=validation)
        with monkeypatch.context() as patch:
            patch.setattr(Task, "normalizes_training_samples", False)
            earlier = replace(job).fingerprint
        assert (job.fingerprint == earlier) == same


def test_evaluation_and_predictions_use_the_constants_of_the_training(tmp_path, manifest):
    job = task(tmp_path / "run", manifest, 0)
    train_simulated(job, StopFlag())
    data = DataManifest.load(manifest)
    summary = json.loads(job.paths.summary.read_text())
    [recorded] = summary["data"]["normalization"]
    [column] = constants(job)
    assert (tuple(recorded["mean"]), tuple(recorded["std"])) == (column.mean, column.std)
    assert column.mean != data.inputs[0].mean
    module, tensors = load_published_model(job.run, data, job.paths.model)
    samples, labels = Split(data, "test").take(np.arange(data.splits["test"].samples))
    (inputs,), _ = tensors(samples, labels)
    shape = (-1, *(1,) * (samples[0].ndim - 2))
    expected = (samples[0] - np.array(column.mean).reshape(shape)) / np.array(column.std).reshape(shape)
    assert inputs.numpy() == pytest.approx(expected, abs=1e-5)
    evaluate_model(job.run, manifest, job.paths.model, job.paths.evaluation)
    right = outputs_of(module, tensors, samples).argmax(1) == labels
    assert json.loads(job.paths.evaluation.read_text())["accuracy"] == pytest.approx(right.mean(), abs=1e-6)
    summary["data"]["normalization"] = [{"mean": [0.0]}]
    job.paths.summary.write_text(json.dumps(summary))
    with pytest.raises(UserError, match=r"summary.json: data.normalization does not fit the inputs"):
        load_published_model(job.run, data, job.paths.model)


def test_a_long_reading_writes_its_progress_and_a_short_one_does_not(drift, monkeypatch, capsys):
    split, train = Split(DataManifest.load(drift), "train"), np.arange(40)
    monkeypatch.setattr(training_moments, "CHUNK_VALUES", 10 * split.sample_bytes)
    quiet = training_moments._computed(split, train)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(training_moments, "MOMENTS_PROGRESS_S", 0.0)
    assert training_moments._computed(split, train) == quiet
    lines = [line.partition("training samples: ")[2] for line in capsys.readouterr().err.splitlines()]
    assert lines == [f"{done} of 40 samples (960 B) are read" for done in (10, 20, 30, 40)]
