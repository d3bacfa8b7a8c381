"""Networks in files of the user: functions, and modules with the functions of the original NNLO."""

import numpy as np
import pytest
import torch
import yaml
from helpers.requires import optional

from nnlo_lib.core.errors import UserError
from nnlo_lib.experiment.load import load_experiment
from nnlo_lib.models.factory import build_model

MODULE = """
import numpy as np
from skopt.space import Integer, Real
from torch import nn

def get_model(hidden=8, dropout=0.0):
    return nn.Sequential(nn.Flatten(), nn.Linear(12, hidden), nn.ReLU(), nn.Dropout(dropout), nn.Linear(hidden, 2))

get_model.parameter_range = [Integer(4, 32, name="hidden"), Real(0.0, 0.5, name="dropout")]

def get_name():
    return "mine"

def get_train():
    return [f"train{i}.npz" for i in range(2)]

def get_val():
    return ["val.npz"]

def get_features():
    return ("x", lambda values: values * 2)

def get_labels():
    return "y"
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Write a module with a `get_model` function and its data files; return their folder, the working directory."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(MODULE)
    draws = np.random.default_rng(0)
    for name in ("train0", "train1", "val"):
        x = draws.normal(size=(200, 12)).astype(np.float32)
        np.savez(tmp_path / f"{name}.npz", x=x, y=np.eye(2)[(x.sum(1) > 0).astype(int)])
    return tmp_path


def test_a_module_s_get_model_takes_its_arguments_alone(module):
    assert build_model("mine.py", {"hidden": 5}, (12,), 2, 0)[1].out_features == 5


def test_the_same_weights_in_every_rank(module):
    one, two = (build_model("mine.py", {}, (12,), 2, 7) for _ in range(2))
    assert torch.equal(one[1].weight, two[1].weight)


BROKEN = {
    "no get_model": ("def model(): pass", "has no attribute 'get_model'"),
    "no network": ("def get_model(): return 3", "returned int; it must return a torch.nn.Module"),
    "it fails": ("def get_model():\n    raise KeyError('lost')", r"^mine\.py:2 in get_model: KeyError: 'lost'; raised by the model .*mine\.py\(\{\}\)"),
}  # fmt: skip


@pytest.mark.parametrize(("text", "told"), BROKEN.values(), ids=BROKEN)
def test_broken_modules(tmp_path, monkeypatch, text, told):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(text)
    with pytest.raises(UserError, match=told):
        build_model("mine.py", {}, (12,), 2, 0)


def test_a_module_may_return_a_keras_model(tmp_path, monkeypatch):
    """The names of the weights do not depend on the number of models built before."""
    optional("keras")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(
        "import keras\ndef get_model():\n"
        "    return keras.Sequential([keras.layers.Input((8, 8, 1)), keras.layers.Flatten(), keras.layers.Dense(3)])"
    )
    one, two = (build_model("mine.py", {}, (1, 8, 8), 3, 0) for _ in range(2))
    assert one(torch.rand(2, 1, 8, 8)).shape == (2, 3)
    assert list(one.state_dict()) == list(two.state_dict()) == ["dense/kernel", "dense/bias"]
    assert torch.equal(one.state_dict()["dense/kernel"], two.state_dict()["dense/kernel"])


def test_its_ranges_are_searched(module):
    (module / "mine.yaml").write_text(yaml.safe_dump({"model": {"name": "mine.py"}, "search": {}}))
    assert list(load_experiment("mine.yaml").search.space) == ["model.args.hidden", "model.args.dropout"]


REFUSED = {
    "whole Keras model": ("model: {name: m.keras}", r"model.name: 'm.keras' is a whole Keras model; .*model.to_json.*model.save_weights\('model.weights.h5'\)"),
    "whole Keras model in HDF5": ("model: {name: m.h5}", r"model.name: 'm.h5' is a whole .*model.to_json.* set `model: {name: model.json, weights: m.h5}`"),
    "weights in place of the network": ("model: {name: best.ckpt}", "model.name: 'best.ckpt' is a file of weights, .* set `model.weights: best.ckpt`"),
    "whole Keras model as weights": ("model: {name: net.json, weights: m.keras}", r"model.weights: 'm.keras' is a whole Keras model; .*save_weights"),
    "no such module": ("model: {name: lost.py}", "model.name: file not found: 'lost.py'"),
    "no such weights": ("model:\n  weights: lost.pt", "model.weights: file not found: 'lost.pt'"),
    "other weights": ("model:\n  weights: mine.py", "model.weights: 'mine.py' has an unknown suffix; use one of .safetensors, .pt, .pth, .ckpt, .bin, .tar, .npz, .h5, .hdf5"),
    "exceptions of nothing": ("model:\n  weights_except: [fc]", "model.weights_except: requires weights"),
    "stacked": (
        "model: {name: net.pt}\nparallel: {transport: simulated, simulation: {compute: batched}}",
        "model.name: simulation.compute: batched does not support the saved network net.pt",
    ),
    "custom objects of a zoo model": ("model: {custom_objects: {A: mine.py:A}}", "model.custom_objects: simplemlp is not a Keras JSON file"),
    "custom objects without a class": ("model: {name: net.json, custom_objects: {A: mine.py}}", "model.custom_objects.A: 'mine.py' is not `path.py:Class`"),
    "custom objects of no file": ("model: {name: net.json, custom_objects: {A: lost.py:A}}", "model.custom_objects.A: file not found: 'lost.py'"),
    "arguments of a file": ("model: {name: net.pt, args: {a: 1}}", "model.args: net.pt is a saved network"),
}  # fmt: skip


@pytest.mark.parametrize(("text", "told"), REFUSED.values(), ids=REFUSED)
def test_refused(module, text, told):
    (module / "net.pt").write_text("")
    (module / "net.json").write_text("{}")
    (module / "m.keras").write_text("")
    (module / "mine.yaml").write_text(text)
    with pytest.raises(UserError, match=told):
        load_experiment("mine.yaml")


def test_weights_from_numpy_are_those_of_the_seed(tmp_path):
    (tmp_path / "drawn.py").write_text(
        "import numpy as np, torch\ndef build(shape, classes):\n    layer = torch.nn.Linear(3, classes)\n"
        "    layer.bias.data = torch.tensor(np.random.rand(classes))\n    return layer\n"
    )
    first, again, other = (
        build_model(f"{tmp_path / 'drawn.py'}:build", {}, (3,), 2, seed).bias for seed in (1, 1, 2)
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_a_compiled_network_is_used_without_its_compilation(module, caplog):
    """torch.compile puts `_orig_mod.` before the names of all weights."""
    code = "import torch\nfrom torch import nn\ndef net(shape, classes):\n    return torch.compile(nn.Sequential(nn.Linear(12, 2)))\n"
    (module / "compiled.py").write_text(code)
    (module / "plain.py").write_text(code.replace("torch.compile(", "("))
    compiled, plain = (
        build_model(f"{name}.py:net", {}, (12,), 2, 0).state_dict() for name in ("compiled", "plain")
    )
    assert list(compiled) == list(plain) == ["0.weight", "0.bias"]
    assert all(map(torch.equal, compiled.values(), plain.values()))
    assert "set train.compile: true" in caplog.text
