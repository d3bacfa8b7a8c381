"""What the checks accept, what they only warn about, what they find after the conversion, and the usual mistakes."""

import itertools
import os
import re
import shutil

import numpy as np
import pytest
import torch
from helpers.nnlo_command import nnlo, refused
from helpers.user_mistakes import EXAMPLES, NET
from PIL import Image

from nnlo_lib import api
from nnlo_lib.config import Experiment
from nnlo_lib.config.paths import store_of
from nnlo_lib.core.errors import UserError
from nnlo_lib.experiment.load import load_experiment
from nnlo_lib.preflight import model_check
from nnlo_lib.preflight.data_check import Mistakes, expected_manifest
from nnlo_lib.preflight.model_check import ModelTrial
from nnlo_lib.preflight.preflight import check_experiment, machine_warnings
from nnlo_lib.train.task import prepare_store
from nnlo_lib.workflow.data_overview import describe_model

OWN = """
from nnlo_lib import Algorithm, Compressor, Pruner, Sampler
class Refusing:
    def __init__(self, *args, **settings):
        raise ValueError("no GPU library")
class Algorithm(Refusing, Algorithm):
    def on_gradient(self, replica, share): pass
    def before_evaluation(self, replica): pass
class Compressor(Refusing, Compressor):
    def size(self, vector): return 1
    def encode(self, vector, step, rank): return vector
    def decode(self, payload, vector): pass
class Sampler(Refusing, Sampler):
    def __call__(self, number, observed): return ()
class Pruner(Refusing, Pruner):
    def rungs(self, trial, epochs): return (epochs,)
    def promote(self, known): return None
def reader(folder, shard_size): pass
"""
MORE = """
NUMBER = 3
def needs(shape, classes, width):
    return Net(classes)
def any(*shape, **options):
    return Net(10)
"""
FILES = {
    "own.py": OWN,
    "empty.py": "",
    "exits.py": "import sys\nsys.exit(3)",
    "none.py": "def build(*, _=0): ...",
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Return the working directory, with the user's network net.py, other code, and arrays of 40 and 12 samples."""
    monkeypatch.chdir(tmp_path)
    changed_net(tmp_path)
    for name, code in FILES.items():
        (tmp_path / name).write_text(code)
    arrays(tmp_path, train=40, small=12, test=10)
    return tmp_path


def arrays(folder, **splits):
    for name, count in splits.items():
        labels, features = np.arange(count) % 10, np.zeros((count, 1, 8, 8), np.float32)
        np.savez(folder / f"{name}.npz", features=features, labels=labels)


def check(folder, text):
    """Return what `nnlo check` logs about a valid experiment."""
    (folder / "x.yaml").write_text(text)
    done = nnlo("check", "x.yaml", folder=folder)
    assert done.returncode == 0, done.stderr
    return done.stderr


def refusal(folder, text):
    """Return the message of `nnlo check` about an experiment."""
    (folder / "x.yaml").write_text(text)
    return refused(nnlo("check", "x.yaml", folder=folder))


@pytest.mark.parametrize("model", ["vgg16", "densenet121"])
def test_large_models_need_no_weights(model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train-00000-of-00001").touch()
    data = {"dataset": "imagenet", "source": ".", "reader": {"name": "tfrecord", "size": 224}}
    run = Experiment.model_validate({"data": data, "model": {"name": model}}).variants["allreduce"]
    trial = ModelTrial(run, expected_manifest(run))
    assert trial.passes_on_meta()


def changed_net(folder, **changes):
    """Write net.py with other texts in the place of `forward` (the return), `features` or `last` (the last layer)."""
    places = {
        "forward": "return self.layers(x.flatten(1))", "features": "return Net(classes, features)", "last": "(32, classes)",
    }  # fmt: skip
    net = NET.lstrip()
    for place, text in changes.items():
        assert places[place] in net
        net = net.replace(places[place], text)
    (folder / "net.py").write_text(net + MORE)


OUTPUTS = "h = self.layers(x.flatten(1))\n        return {'a': h, 'b': h}"
ARRAYS = "data:\n  dataset: mine\n  source: .\n  reader: {name: arrays, train: train.npz}\n"
SPACE = "search: {space: {train.batch_size: [8, 9]}, "
WIDTHS = "model: {name: net.py:build}\nsearch: {space: {model.args.features: [%s]}}\n"
GOOD = {
    "gan": "problem: {name: gan, gradient_penalty: 10}\nmodel: {name: lsgan}\ndata: {dataset: mnist}",
    "regression": "problem: regression\nmodel: {name: simplemlp}\ndata: {dataset: diabetes}",
    "several outputs": "model: {name: net.py:build}\nloss: {a: cross_entropy, b: mse}\nmetrics: [accuracy, accuracy@b]",
    "argument that trials set": "model: {name: net.py:needs}\nsearch: {space: {model.args.width: {integer: [4, 8]}}}",
    "any arguments": "model: {name: net.py:any, args: {width: 3}}",
    "user's class of a data set that is fetched": "model: {name: net.py:build}\ndata: {dataset: mnist}\ntrain: {precision: float64}",
    "statistics": "data: {dataset: cifar10, normalize: standard, crop: 28}\nmodel: {name: simplecnn}",
    "default batch above the samples": ARRAYS.replace("train.npz", "small.npz"),
    "URL": "data: {dataset: mnist, source: 'https://example.org/mnist'}",
    "archive": "data: {dataset: mnist, source: mnist.tar.gz}",
    "file of the catalog": "data: {dataset: mnist, source: any_name}",
    # The first or the last values may fit: a trial that fails is no mistake of the search.
    "search of which the first trial fits": WIDTHS % "64, 100",
    "search of which the last trial fits": WIDTHS % "100, 64",
}  # fmt: skip


@pytest.mark.parametrize(("title", "text"), GOOD.items(), ids=GOOD)
def test_accepted(folder, title, text):
    for name in ("mnist.tar.gz", "any_name"):
        (folder / name).touch()
    features = {} if "search" in title else {"features": "return Net(classes, shape[-1] ** 2)"}
    changed_net(folder, **features, **({"forward": OUTPUTS} if title == "several outputs" else {}))
    check(folder, text)


REFUSED = {
    "no function": ("model: net.py:NUMBER", "1: model.name: NUMBER in net.py is no function but int"),
    "module that defines none": ("model: empty.py:build", "1: model.name: empty.py has no function 'build'; it defines none"),
    "file that exits": ("model: exits.py:build", "1: model.name: exits.py cannot be loaded: exits.py:"),
    "function without arguments": ("model: {name: none.py:build, args: {width: 3}}", "1: model.args.width: none.py:build has no argument 'width'"),
    "function with other arguments": ("model: net.py:needs", "1: model.args: net.py:needs called with shape, classes: missing a required argument: 'width'"),
    "algorithm": ("algorithm: own.py:Algorithm", "1: algorithm.name: own.py:5 in __init__: ValueError: no GPU library"),
    "compressor": ("compression: own.py:Compressor\nalgorithm: {name: diloco}", "1: compression.name: own.py:5 in __init__: ValueError: no GPU library"),
    "sampler": (f"{SPACE}method: own.py:Sampler}}", "1: search.method.name: own.py:5 in __init__: ValueError: no GPU library"),
    "pruner": (f"{SPACE}fidelity: own.py:Pruner}}", "1: search.fidelity.name: own.py:5 in __init__: ValueError: no GPU library"),
    "reader": ("data: {dataset: mine, source: ., reader: own.py:Refusing}", "1: data.reader.name: own.py:Refusing is not a function of (folder, shard_size, **args)"),
    "adaptor, named once": ("data: {dataset: mine, source: ., reader: {name: arrays, train: a.npz, adaptor: gone.py:f}}", "1: data.reader.adaptor: file not found: 'gone.py'"),
    "batch above the samples": (f"{ARRAYS.replace('train.npz', 'small.npz')}train: {{batch_size: 33}}", "5: train.batch_size: 33 is more than the 11 training samples; use a smaller batch"),
    "search of which no trial fits": (WIDTHS % "100, 200", "1: model.name: net.py:10 in forward: RuntimeError: mat1 and mat2 shapes cannot be multiplied"),
}  # fmt: skip


@pytest.mark.parametrize(("text", "sentence"), REFUSED.values(), ids=REFUSED)
def test_a_mistake_is_one_sentence(folder, text, sentence):
    told = refusal(folder, text)
    assert f"\n  x.yaml:{sentence}" in told
    assert told.count("\n  ") == 1


NETWORK, SOFTMAX = "model: net.py:build", {"last": "(32, classes), nn.Softmax(1)"}
IN_EVALUATION = "h = self.layers(x.flatten(1))\n        return h if self.training else h.softmax(1)"
GEM = "algorithm: {name: gem, momentum: %s}\ntrain: {optimizer: {name: %s}}"
TWICE = "gem multiplies its momentum with the momentum of"
WARNED = {
    "softmax before cross_entropy": (SOFTMAX, NETWORK, "sum to 1 as after softmax, which cross_entropy applies itself"),
    "softmax of probabilities": (SOFTMAX, f"{NETWORK}\nproblem: {{name: classification, outputs: probabilities}}", ""),
    # Training sees scores, so that only the measured accuracy is wrong.
    "softmax in evaluation alone": ({"forward": IN_EVALUATION}, NETWORK, "as after softmax"),
    "two momentums": ({}, GEM % (0.9, "adam"), TWICE),
    "two momentums of SGD": ({}, GEM % (0.9, "sgd, momentum: 0.5"), TWICE),
    "momentum of gem": ({}, GEM % (0.9, "sgd"), ""),
    "momentum of adam": ({}, GEM % (0.0, "adam"), ""),
    "model that meta does not support": ({"forward": "print(x.sum().item())\n        return self.layers(x.flatten(1))"}, f"{NETWORK}\nparallel: {{ranks: 1}}\nalgorithm: individual", ""),
}  # fmt: skip


@pytest.mark.parametrize(("changes", "text", "warning"), WARNED.values(), ids=WARNED)
def test_what_is_probably_a_mistake_is_a_warning(folder, changes, text, warning):
    changed_net(folder, **changes)
    said = [line for line in check(folder, text).splitlines() if "of this machine will be slow" not in line]
    assert len(said) == bool(warning)
    assert warning in "".join(said)


def test_classes_with_fewer_samples_than_folds(folder):
    """Known only from the labels in the store."""
    np.savez(folder / "few.npz", features=np.zeros((60, 1, 8, 8), np.float32), labels=np.arange(60) % 30)
    data = "data: {dataset: few, source: ., reader: {name: arrays, train: few.npz}}\n"
    text = f"model: {{name: net.py:build}}\nfolds: 5\n{data}"
    changed_net(folder, last="(32, 30)")
    check(folder, text)
    converted(folder, text)
    sentence = (
        "folds: 5 folds of the same proportions need a class of at least 5 samples, but the largest has 2"
    )
    assert f"x.yaml:2: {sentence}" in refusal(folder, text)
    check(folder, text.replace("source", "stratify: false, source"))


def test_a_shape_that_is_known_after_the_conversion_is_checked_before_the_ranks_start(folder):
    for split, name, number in itertools.product(("train", "test"), ("cat", "dog"), range(6)):
        path = folder / "images" / split / name / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (9, 9), (20 * number, 0, 0)).save(path)
    data = "data: {dataset: pets, source: images, reader: {name: folder, size: 8}, validation: 0.2}"
    text = f"name: t\n{data}\nmodel: {{name: net.py:build}}\n"
    assert "pets: the model is checked after the conversion" in check(folder, text)
    done = nnlo("run", "x.yaml", folder=folder)
    assert (done.returncode, "Traceback" in done.stderr) == (2, False)
    sentence = "RuntimeError: mat1 and mat2 shapes cannot be multiplied (3x192 and 64x32)"
    assert f"model.name: net.py:10 in forward: {sentence}" in done.stderr
    assert "samples are 3 x 8 x 8" in done.stderr
    assert not list(folder.glob("results/**/state")), "no rank was started"


def test_the_python_interface_refuses_too(folder):
    experiment = Experiment.model_validate({"name": "t", "model": {"name": "net.py:bild"}})
    for start in (api.train, api.search):
        message = r"t: model.name: net.py has no function 'bild'; did you mean 'build'\?"
        with pytest.raises(UserError, match=message):
            start(experiment)


def warnings(**settings):
    return machine_warnings(Experiment.model_validate(settings).variants)


def test_ranks_and_gpus_are_held_against_this_machine(monkeypatch):
    cores = len(os.sched_getaffinity(0))
    assert warnings(parallel={"ranks": cores + 1}) == [
        f"run allreduce: {cores + 1} workers with 1 thread each on the {cores} cores of this machine will be slow"
    ]
    # Several nodes are other machines, and the server of downpour mostly waits.
    assert warnings(parallel={"ranks": cores + 1}, resources={"nodes": 2}) == []
    assert warnings(parallel={"ranks": cores + 1}, algorithm={"name": "downpour"}) == []
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    assert warnings(parallel={"ranks": 2, "gpus_per_rank": 1}) == [
        "run allreduce: parallel.gpus_per_rank needs 2 GPUs, but this machine has 1"
    ]


def test_a_saved_network_of_two_inputs(folder):
    class Two(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(3, 2)

        def forward(self, first, second):
            return self.layer(first) + self.layer(second)

    torch.jit.script(Two()).save(folder / "two.pt")
    arrays = {"a": np.zeros((20, 3), np.float32), "b": np.zeros((20, 3), np.float32)}
    np.savez(folder / "two.npz", labels=np.arange(20) % 2, **arrays)
    check(
        folder,
        "data: {dataset: two, source: ., reader: {name: arrays, train: two.npz, features: [a, b]}}\nmodel: {name: two.pt, trust: true}",
    )


def test_nll_of_two_classes_is_refused_and_cross_entropy_is_not(folder):
    draws = np.random.default_rng(0)
    np.savez("two.npz", features=draws.random((40, 1, 8, 8), np.float32), labels=np.arange(40) % 2)
    text = "data: {dataset: mine, source: ., reader: {name: arrays, train: two.npz}}\nloss: binary_cross_entropy\n"
    check(folder, f"{text}metrics: [accuracy, top1_accuracy, cross_entropy]\n")
    (folder / "x.yaml").write_text(f"{text}metrics: [accuracy, nll]\n")
    said = refused(nnlo("check", "x.yaml", folder=folder))
    assert "x.yaml:3: metrics.1: nll needs one output for each class, but the model returns 1" in said


def converted(folder, text):
    """Convert the data of an experiment, so that the checks read the store."""
    (folder / "x.yaml").write_text(text)
    prepare_store(store_of(load_experiment("x.yaml"), leads=True))


def test_splits_that_the_store_lacks_are_refused(folder):
    converted(folder, ARRAYS)
    text = refusal(folder, f"{ARRAYS}  validation: validation\n")
    assert "x.yaml:5: data.validation: mine has no split validation; it has train" in text
    text = refusal(folder, f"{ARRAYS}  validation: 0\n")
    assert "mine has no test split, so that 0 leaves no samples to evaluate the model; set it to 0.1" in text
    check(folder, f"{ARRAYS}  validation: 0\nfolds: 2\n")


def test_whole_shards_are_counted_as_they_are_split(folder):
    text = f"{ARRAYS.replace('train.npz', 'train.npz, test: test.npz')}  shard_size: 10\n  split_by: shard\n  validation: test\n"
    converted(folder, text)
    check(folder, f"{text}folds: 4\n")
    assert "shards are divided, not samples: 5 folds need at least 5 samples, not 4" in refusal(
        folder, f"{text}folds: 5\n"
    )


def test_the_source_may_be_removed_after_the_conversion(folder):
    (folder / "raw").mkdir()
    arrays(folder / "raw", train=40)
    text = ARRAYS.replace("source: .", "source: raw")
    converted(folder, text)
    shutil.rmtree(folder / "raw")
    assert "data.source: raw not found; using the store that was converted from it" in check(folder, text)


SWALLOWS = """
from torch import nn
def get_model(**args):
    width = args.get("hidden", 8)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, width), nn.Dropout(args.get("rate", 0.5)), nn.Linear(width, 10))
"""


@pytest.mark.parametrize(
    ("space", "warned"),
    [
        ("model.args.hiden: {integer: [4, 64]}", "search.space.model.args.hiden: has no effect.*did you mean 'hidden'"),
        ("checkpoint.keep: {integer: [1, 4]}", "search.space.checkpoint.keep: has no effect on the training"),
        ("model.args.hidden: {integer: [4, 64]}, model.args.rate: {uniform: [0.1, 0.6]}", None),
    ],
    ids=["misspelt", "no part of the training", "known"],
)  # fmt: skip
def test_a_searched_argument_without_effect_is_named(folder, caplog, space, warned):
    """A model with `**args` accepts a misspelt name, so that all trials train the same network."""
    (folder / "mine.py").write_text(SWALLOWS)
    (folder / "x.yaml").write_text(
        f"data: {{dataset: digits}}\nmodel: {{name: mine.py}}\nsearch: {{space: {{{space}}}}}\n"
    )
    check_experiment(load_experiment("x.yaml"))
    found = [each.message for each in caplog.records if "no effect" in each.message]
    assert len(found) == bool(warned)
    assert not warned or re.search(warned, found[0])


def test_equal_runs_are_checked_once_and_a_mistake_names_the_run_that_made_it(folder, monkeypatch):
    checked = []
    monkeypatch.setattr(model_check, "check_model", lambda run, *_: checked.append(run.model.name))
    runs = {"a": {}, "b": {"train": {"epochs": 3}}, "c": {"model": {"name": "simplemlp"}}}
    check_experiment(Experiment.model_validate({"model": {"name": "simplecnn"}, "runs": runs}))
    assert checked == ["simplecnn", "simplemlp"]
    mistakes = Mistakes(Experiment.model_validate({"runs": {"a": {"data": {"crop": 3}}}}), "a")
    for message in ("data.crop: 3 is odd", "train.npz: no array", "seeds: none"):
        mistakes.add_error(("model", "name"), UserError(message))
    assert mistakes == [
        (("runs", "a", "data", "crop"), "3 is odd"), (("model", "name"), "train.npz: no array"), (("seeds",), "none"),
    ]  # fmt: skip


def test_the_trial_of_a_model_leaves_the_random_state_alone(folder):
    torch.manual_seed(3)
    np.random.seed(3)
    expected = torch.random.get_rng_state(), np.random.get_state()[1].tolist()
    check(folder, "model: {name: net.py:build}")
    assert torch.equal(torch.random.get_rng_state(), expected[0])
    assert np.random.get_state()[1].tolist() == expected[1]


@pytest.mark.parametrize(
    ("data", "shape", "samples"),
    [
        ({"dataset": "lidar", "reader": {"name": "lidar", "robots": 2, "scans": 3, "beams": 4, "points": 5}}, (2,), 120),
        ({"dataset": "house", "source": ".", "reader": {"name": "lidar", "waypoints": ["a.npy"], "scans": 3, "beams": 4, "points": 5}}, (2,), 60),
        ({"dataset": "synthetic", "reader": {"name": "synthetic", "shape": [3, 4, 4], "samples": 7}}, (3, 4, 4), 7),
        ({"dataset": "mnist"}, (1, 28, 28), 60_000),
        ({"dataset": "pets", "source": "pets.tar.gz", "reader": {"name": "folder", "size": 8}}, None, None),
    ],
    ids=["lidar", "plan of the user", "synthetic", "catalog", "unknown"],
)  # fmt: skip
def test_the_shape_of_the_samples_is_known_before_the_conversion(tmp_path, monkeypatch, data, shape, samples):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pets.tar.gz").touch()
    np.save(tmp_path / "a.npy", [[0.0, 0.0]])
    run = Experiment.model_validate({"data": data}).variants["allreduce"]
    found = expected_manifest(run)
    assert (found and found.inputs[0].shape, found and found.splits["train"].samples) == (shape, samples)
    if shape is None:
        message = "unknown before the conversion; convert the data set: nnlo data FILE"
        with pytest.raises(UserError, match=message):
            describe_model(run, 0)


@pytest.fixture
def mistaken(tmp_path):
    """Return a folder with weights of another net."""
    torch.save({"conv.weight": torch.zeros(3)}, tmp_path / "w.pt")
    return tmp_path


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.title)
def test_mistake_is_named(example, mistaken):
    """Each of the usual mistakes is one sentence, with status 2 and without a traceback."""
    example.write(mistaken)
    message = refused(nnlo("check", "x.yaml", folder=mistaken))
    assert example.sentence in message
    assert message.count("\n  ") == 1, "one mistake in one line"


@pytest.mark.parametrize("command", ["check", "run", "plan", "simulate"])
def test_no_command_starts_with_a_mistake(command, mistaken):
    EXAMPLES[0].write(mistaken)
    assert EXAMPLES[0].sentence in refused(nnlo(command, "x.yaml", folder=mistaken))
    assert not (mistaken / "results").exists()
    assert not (mistaken / "data").exists()
