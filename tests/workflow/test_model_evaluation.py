"""`nnlo evaluate`: numbers by numpy from the published weights, on own and other data, and its refusals."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from helpers.nnlo_command import nnlo, refused
from safetensors.numpy import load_file

from nnlo_lib.config import Experiment
from nnlo_lib.data.store.manifest import DataManifest
from nnlo_lib.data.store.split import Split
from nnlo_lib.data.store_location import locate_store
from nnlo_lib.train.evaluation.evaluate import evaluate_model
from nnlo_lib.train.rank import train_simulated
from nnlo_lib.train.rank_process import StopFlag
from nnlo_lib.train.task import Task, prepare_store

FOLDER = "results/t/r/seed-0"
MODEL = "model: {name: simplemlp, args: {hidden: 8, layers: 1}}\n"
OTHER = "data: {dataset: mine, source: mine, reader: {name: arrays, train: 'all.npz', test: 'again.npz', features: x, labels: y}}\n"
SETTINGS = {
    "model": {"name": "simplemlp", "args": {"hidden": 8, "layers": 1}},
    "data": {"normalize": "standard"},
    "train": {"epochs": 1, "batch_size": 100},
    "parallel": {"ranks": 1, "transport": "simulated"},
}


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """Return a folder with a finished and evaluated training on the digits."""
    folder = tmp_path_factory.mktemp("project")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        finished_training(SETTINGS, FOLDER)
    (folder / "mine.yaml").write_text(MODEL + OTHER)
    (folder / "mine").mkdir()
    return folder


def finished_training(settings, folder):
    (run,) = Experiment.model_validate(settings).variants.values()
    store = locate_store(run.data.store_settings)
    prepare_store(store)
    task = Task("t", "r", run, 0, None, 1, store.manifest, Path(folder))
    assert train_simulated(task, StopFlag())
    evaluate_model(run, store.manifest, task.paths.model, task.paths.evaluation)


def digits(project):
    """Return images and labels of the test split."""
    (manifest,) = project.glob("data/digits/*/manifest.json")
    (images,), labels = Split(DataManifest.load(manifest), "test").take(np.arange(355))
    return images, labels


def write_arrays(project, x, y):
    for name in ("all", "again"):
        np.savez(project / f"mine/{name}.npz", x=x, y=y)


def scores(project, inputs):
    """Return the scores of the published network for normalized inputs, by numpy."""
    weights = load_file(project / FOLDER / "model.safetensors")
    hidden = np.maximum(inputs.reshape(len(inputs), -1) @ weights["1.0.weight"].T + weights["1.0.bias"], 0)
    return hidden @ weights["2.weight"].T + weights["2.bias"]


def loss_and_accuracy(outputs, labels):
    logarithms = np.log(np.exp(outputs - outputs.max(1, keepdims=True)).sum(1)) + outputs.max(1)
    right = outputs.argmax(1) == labels
    return (logarithms - outputs[np.arange(len(labels)), labels]).mean(), right.mean()


def moments(project):
    summary = json.loads((project / FOLDER / "summary.json").read_text())
    (found,) = summary["data"]["normalization"]
    return found["mean"][0], found["std"][0]


def evaluated(project, *arguments):
    """Return the file that `nnlo evaluate` writes."""
    done = nnlo("evaluate", *arguments, "--output", "out.json", folder=project)
    assert done.returncode == 0, done.stderr
    return json.loads((project / "out.json").read_text()) | {"stdout": done.stdout}


def recorded(project):
    return json.loads((project / FOLDER / "evaluation.json").read_text())


def assert_same_numbers(found, expected):
    pairs = [(each["loss"], each["accuracy"]) for each in (found, expected)]
    assert pairs[0] == pytest.approx(pairs[1], rel=1e-5)


def test_a_folder_gives_the_numbers_of_its_evaluation(project):
    found, expected = evaluated(project, FOLDER), recorded(project)
    shared = ("loss", "accuracy", "confusion", "samples", "split", "classes", "model_sha256")
    assert {key: found[key] for key in shared} == {key: expected[key] for key in shared}
    line = f"{FOLDER}: test (355 samples): loss {found['loss']:.6g}  accuracy {found['accuracy']:.6g}\n"
    assert found["stdout"] == line


@pytest.mark.parametrize("split", ["test", "train"])
def test_other_data_are_normalized_as_the_training_and_measured_as_by_numpy(project, split):
    images, labels = digits(project)
    # Bytes up to 255 instead of 16, so that means and deviations are in other units.
    larger = np.round(images * (255 / 16)).astype(np.uint8)
    write_arrays(project, larger, labels)
    found = evaluated(project, FOLDER, "--experiment", "mine.yaml", "--split", split)
    mean, std = moments(project)
    expected = loss_and_accuracy(scores(project, (larger * (16 / 255) - mean) / std), labels)
    assert (found["loss"], found["accuracy"]) == pytest.approx(expected, rel=1e-5)
    assert (found["split"], found["samples"]) == (split, 355)


def test_data_without_the_last_class_keep_the_classes_of_the_training(project):
    images, labels = digits(project)
    write_arrays(project, images[labels < 9], labels[labels < 9])
    changes = (
        "data.dataset=mine",
        "data.source=mine",
        "data.reader={name: arrays, train: '*.npz', features: x, labels: y}",
    )
    options = [word for change in changes for word in ("--set", change)]
    found = evaluated(project, FOLDER, *options, "--split", "train")
    assert np.shape(found["confusion"]) == (10, 10)
    assert sum(found["confusion"][9]) == 0


def write_model(project):
    """Write w.yaml with the model and the normalization of the training."""
    mean, std = (value / 16 for value in moments(project))
    (project / "w.yaml").write_text(f"{MODEL}data: {{normalize: {{mean: [{mean}], std: [{std}]}}}}\n")


def test_a_weights_file_is_evaluated_with_the_model_of_an_experiment(project):
    write_model(project)
    shutil.copy(project / FOLDER / "model.safetensors", project / "copy.safetensors")
    assert_same_numbers(evaluated(project, "copy.safetensors", "--experiment", "w.yaml"), recorded(project))


@pytest.mark.parametrize("order", ["NHWC", "NCHW"])
def test_exported_weights_of_pydtnn_give_the_same_numbers(project, order):
    write_model(project)
    done = nnlo("export", FOLDER, "w.npz", "--order", order, folder=project)
    assert (done.returncode, done.stdout) == (0, f"w.npz: 4 arrays in PyDTNN's layout ({order})\n")
    assert_same_numbers(evaluated(project, "w.npz", "--experiment", "w.yaml"), recorded(project))


def test_models_are_exported_to_files_of_known_suffixes(project):
    assert "name a file with one of the suffixes .npz, .pt2, .onnx" in refused(
        nnlo("export", FOLDER, "w.h5", folder=project)
    )


X, Y = np.zeros((20, 1, 8, 8), np.uint8), np.arange(20) % 10
MISFITS = {
    "shape": (
        np.zeros((20, 1, 9, 9), np.uint8),
        Y,
        "uint8 1 x 9 x 9, but the model was trained with uint8 1 x 8 x 8",
    ),
    "type": (X.astype(np.float32), Y, "float32 1 x 8 x 8, but the model was trained with uint8"),
    "classes": (X, np.arange(20) % 11, "11 classes, but the model was trained with 10"),
    "numbers": (X, np.linspace(0, 1, 20), "the labels are numbers"),
}


@pytest.mark.parametrize("misfit", MISFITS)
def test_data_that_do_not_fit_the_model_are_refused(project, misfit):
    x, y, reason = MISFITS[misfit]
    write_arrays(project, x, y)
    extra = ("--set", "data.reader.one_hot=false") if misfit == "numbers" else ()
    message = refused(nnlo("evaluate", FOLDER, "--experiment", "mine.yaml", *extra, folder=project))
    assert reason in message


WRONG_USES = {
    "missing": (("nowhere",), "nowhere: not found"),
    "no run": (("mine",), "mine: no finished training (summary.json is missing)"),
    "no model": (("copy.pt",), "a weights file does not name its model; add --experiment FILE"),
    "suffix": (("mine.yaml", "--experiment", "mine.yaml"), "unknown suffix of a weights file"),
    "split": ((FOLDER, "--split", "other"), "no split 'other'; choose one of: test, train"),
    "other key": ((FOLDER, "--set", "train.epochs=3"), "the training fixes all keys except `data`"),
    "normalization": ((FOLDER, "--set", "data.normalize=unit"), "data.normalize: unit, but the model was trained with standard"),
    "output": ((FOLDER, "--output", f"{FOLDER}/evaluation.json"), "exists in the folder of a training"),
    "other network": (
        (f"{FOLDER}/model.safetensors", "--experiment", "mine.yaml", "--set", "model.args.hidden=9"),
        "(8,) in the file, (9,) in the model",
    ),
}  # fmt: skip


@pytest.mark.parametrize("use", WRONG_USES)
def test_wrong_uses_are_refused(project, use):
    write_arrays(project, X, Y)
    (project / "copy.pt").write_bytes(b"")
    arguments, reason = WRONG_USES[use]
    message = refused(nnlo("evaluate", *arguments, folder=project))
    assert reason in message.replace("train, test", "test, train")


def test_code_of_a_run_needs_trust(project, monkeypatch):
    monkeypatch.chdir(project)
    code = "from torch import nn\ndef net(shape, classes):\n    return nn.Sequential(nn.Flatten(), nn.Linear(64, classes))\n"
    (project / "mine.py").write_text(code)
    finished_training(SETTINGS | {"model": {"name": "mine.py:net"}}, "results/t/code/seed-0")
    message = refused(nnlo("evaluate", "results/t/code/seed-0", folder=project))
    assert "that runs mine.py; add --trust" in message
    assert nnlo("evaluate", "results/t/code/seed-0", "--trust", folder=project).returncode == 0
