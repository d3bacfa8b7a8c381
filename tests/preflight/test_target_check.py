"""Targets outside of 0..1 are found by `nnlo check` in the store, in each split that a run is measured on; samples that cannot be mixed."""

import numpy as np
import pytest
from helpers.nnlo_command import nnlo, refused

from nnlo_lib.config import Experiment, Run
from nnlo_lib.config.paths import store_of
from nnlo_lib.core.errors import UserError
from nnlo_lib.data.store.manifest import ArraySpec
from nnlo_lib.experiment.load import load_experiment
from nnlo_lib.preflight import data_check
from nnlo_lib.preflight.preflight import check_experiment
from nnlo_lib.problems.targets import check_mixture
from nnlo_lib.train.rank import train_simulated
from nnlo_lib.train.rank_process import StopFlag
from nnlo_lib.train.task import Task, prepare_store
from nnlo_lib.workflow.plan import Plan

SPLITS = ("train", "validation", "test")
EXPERIMENT = """name: t
problem: regression
model: {name: perceptron, args: {hidden: [4]}}
%s
data:
  dataset: mine
  source: .
  validation: %s
  shard_size: 7
  reader: {name: arrays, one_hot: false%s}
train: {epochs: 1}
parallel: {ranks: 2, transport: simulated}
runs: {run: {}}
"""
LOSS = "loss: binary_cross_entropy"


@pytest.fixture
def experiment(tmp_path, monkeypatch):
    """Return a function that writes x.yaml and its data, and converts the data."""
    monkeypatch.chdir(tmp_path)

    def write(wrong, line=LOSS, validation="validation", splits=SPLITS):
        """Write splits of 20 samples; `wrong` has the value of sample 19 by split, `line` the loss or the metrics."""
        for split in splits:
            targets = np.append(np.linspace(0, 1, 19), wrong.get(split, 1.0))
            np.savez(
                f"{split}.npz", features=np.full((20, 3), SPLITS.index(split), np.float32), labels=targets
            )
        files = "".join(f", {split}: {split}.npz" for split in splits)
        (tmp_path / "x.yaml").write_text(EXPERIMENT % (line, validation, files))
        prepare_store(store_of(load_experiment("x.yaml"), leads=True))
        return tmp_path

    return write


def sentence(split, value, place="loss"):
    return f"{place}: binary_cross_entropy needs targets from 0 to 1, but sample 19 of the {split} split has {value};"


@pytest.mark.processes
@pytest.mark.parametrize("split", SPLITS[:2])
def test_check_names_split_sample_and_value(experiment, split):
    folder = experiment({split: 1.5})
    assert f"x.yaml:4: {sentence(split, 1.5)}" in refused(nnlo("check", "x.yaml", folder=folder))


def mistakes(changes=()):
    try:
        check_experiment(load_experiment("x.yaml", changes))
    except UserError as error:
        return str(error)
    return ""


MET = "metrics: [mae, binary_cross_entropy]"
FOUND = {
    "all splits at once": ({"train": -0.5, "validation": 7.0, "test": 1.5}, {}, [sentence("train", "-0.5"), sentence("validation", "7"), sentence("test", "1.5")]),
    "a metric": ({"test": 1.5}, {"line": MET}, [sentence("test", 1.5, "metrics")]),
    "targets that fit": ({}, {}, []),
    "another loss": (dict.fromkeys(SPLITS, 9.0), {"line": "loss: mse"}, []),
    # The test split is evaluated, and the validation samples come from the training split.
    "a split on which no model is measured": ({"validation": 1.5}, {"validation": 0.25}, []),
    "the validation split, evaluated without a test split": (
        {"validation": 1.5}, {"validation": 0.25, "splits": SPLITS[:2]}, [sentence("validation", 1.5)]),
}  # fmt: skip


@pytest.mark.parametrize(("wrong", "settings", "sentences"), FOUND.values(), ids=FOUND)
def test_splits_that_are_measured_have_targets_that_fit(experiment, wrong, settings, sentences):
    experiment(wrong, **settings)
    found = mistakes()
    assert all(each in found for each in sentences)
    assert bool(sentences) == bool(found)


@pytest.mark.parametrize("limit", ["MAX_LABEL_SHARDS", "MAX_TARGETS"])
def test_of_a_large_split_the_first_shards_are_read(experiment, monkeypatch, limit):
    """Of three shards with 7 samples, the last has the wrong target: the training finds it."""
    experiment({"test": 1.5})
    monkeypatch.setattr(data_check, limit, 2 if limit == "MAX_LABEL_SHARDS" else 10)
    assert mistakes() == ""


@pytest.mark.parametrize("split", SPLITS)
def test_a_training_does_not_start_with_targets_outside(experiment, split):
    folder = experiment({split: 1.5})
    loaded = load_experiment("x.yaml")
    run, store = Plan.of(loaded).run("run"), store_of(loaded, leads=True)
    task = Task("t", "run", run, 0, None, 1, store.manifest, folder / "run")
    with pytest.raises(UserError, match=f"^{sentence(split, 1.5)}"):
        train_simulated(task, StopFlag())
    assert not task.paths.state.checkpoints.exists()


def test_a_model_of_classes_reads_no_targets(monkeypatch):
    monkeypatch.setattr(data_check, "stored_labels", lambda *_: pytest.fail("read"))
    check_experiment(Experiment.model_validate({"name": "t", "data": {"dataset": "digits"}}))


CLASSES = """name: t
data: {dataset: mine, source: ., reader: {name: arrays, train: train.npz, test: test.npz}}
model: {name: perceptron, args: {hidden: [4]}}
"""
STRAY = "no training sample of mine has the class 3, 4, 5, 6, but the model gets an output for each of 8 classes; is the largest label, 7, a mistake? Samples with it: 1"


@pytest.fixture
def stray(tmp_path, monkeypatch):
    """Write x.yaml and 3 classes of 8, 9 and 10 training samples, with one label 7 more."""
    monkeypatch.chdir(tmp_path)
    for split, labels in (("train", np.repeat([0, 1, 2, 7], [8, 9, 10, 1])), ("test", np.arange(3))):
        np.savez(split, features=np.ones((len(labels), 12), np.float32), labels=labels)
    (tmp_path / "x.yaml").write_text(CLASSES)
    return tmp_path


@pytest.mark.parametrize("converted", [False, True])
def test_a_label_far_from_the_others_is_warned_of(stray, converted):
    if converted:
        prepare_store(store_of(load_experiment("x.yaml")))
    done = nnlo("check", "x.yaml", folder=stray)
    assert done.returncode == 0
    assert done.stdout.splitlines()[1:] == [
        "mine, train: 0: 8, 1: 9, 2: 10, 3: 0, 4: 0, 5: 0, 6: 0, 7: 1",
        "mine, test: 0: 1, 1: 1, 2: 1, 3: 0, 4: 0, 5: 0, 6: 0, 7: 0",
    ]
    assert STRAY in done.stderr


def test_labels_of_large_files_are_counted_after_the_conversion(stray, monkeypatch):
    monkeypatch.setattr(data_check, "MAX_COUNTED_BYTES", 100)
    done = nnlo("check", "x.yaml", folder=stray)
    assert (
        "mine: 8 classes; their samples are counted after the conversion, by `nnlo data FILE`" in done.stdout
    )
    assert STRAY not in done.stderr


def test_a_vector_is_written_as_a_shape(stray):
    (stray / "x.yaml").write_text(CLASSES.replace("perceptron, args: {hidden: [4]}", "net.py:build"))
    (stray / "net.py").write_text(
        "from torch import nn\ndef build(shape, classes): return nn.Linear(7, classes)\n"
    )
    assert refused(nnlo("check", "x.yaml", folder=stray)).strip().endswith("samples are (12,)")


@pytest.mark.parametrize(("key", "classes", "kind", "shape", "reason"), [
    ("cutmix", 2, "float32", (3,), r"x has the shape \(3,\), but only images have rectangles; set `problem.mixup` instead"),
    ("mixup", 2, "int64", (3,), r"the indices of x \(int64\) have no mean; remove this key"),
    ("mixup", None, "uint8", (1, 2, 2), "the labels of digits are no classes; remove this key"),
])  # fmt: skip
def test_samples_that_cannot_be_mixed(key, classes, kind, shape, reason):
    run = Run.model_validate({"problem": {key: 0.2}})
    with pytest.raises(UserError, match=f"^problem.{key}: {reason}$"):
        check_mixture(run, classes, [ArraySpec("x", shape, kind)])


def test_check_and_training_refuse_to_mix_the_rows_of_a_table(stray):
    (stray / "x.yaml").write_text(f"{CLASSES}problem: {{cutmix: 1}}\nruns: {{run: {{}}}}\n")
    loaded = load_experiment("x.yaml")
    store = store_of(loaded, leads=True)
    prepare_store(store)
    assert "problem.cutmix: features has the shape" in mistakes()
    task = Task("t", "run", Plan.of(loaded).run("run"), 0, None, 1, store.manifest, stray / "run")
    with pytest.raises(UserError, match=r"^problem.cutmix: features has the shape"):
        train_simulated(task, StopFlag())
