"""Initial weights from the file `model.weights`, also as other trainers write them: under a key, with a prefix of a wrapper."""

import re
from argparse import Namespace
from collections import defaultdict
from datetime import datetime
from enum import Enum
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.training_process import training
from safetensors.torch import save_file
from torch import nn

from nnlo_lib.config import Run
from nnlo_lib.core.errors import UserError
from nnlo_lib.models.saved_networks import load_weights
from nnlo_lib.train.task import Task


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Linear(3, 2))


@pytest.fixture
def file(tmp_path):
    """Return a function that writes tensors in the format of a suffix and returns the path."""

    def write(tensors, suffix=".safetensors"):
        path = tmp_path / f"weights{suffix}"
        save_file(tensors, path) if suffix == ".safetensors" else torch.save(tensors, path)
        return str(path)

    return write


def changed():
    return {name: tensor + 1 for name, tensor in network().state_dict().items()}


def assert_loaded(path):
    module = network()
    load_weights(module, path)
    assert all(torch.equal(tensor, changed()[name]) for name, tensor in module.state_dict().items())


@pytest.mark.parametrize("suffix", [".safetensors", ".pt", ".pth.tar", ".ckpt", ".bin"])
def test_all_tensors_are_taken(file, suffix):
    assert_loaded(file(changed(), suffix))


def changed_network():
    module = network()
    module.load_state_dict(changed())
    return module


def under(prefix):
    return {prefix + name: tensor for name, tensor in changed().items()}


@pytest.mark.parametrize(
    "nested",
    [
        {"state_dict": under("module."), "epoch": 3}, {"state_dict": under("model.")}, under("_orig_mod.module."),
        {"model": changed(), "optimizer": {"lr": 0.1}}, {"model_state_dict": changed(), "loss": 0.1},
        {"net": under("module."), "acc": 90.0}, {"state_dict": changed(), "args": Namespace(lr=0.1)},
        {"state_dict": changed(), "best_acc": np.float64(0.9), "epoch": np.int64(3), "is_best": np.bool_(True)},
        {"state_dict": changed(), "history": np.array([1.0, 2.0]), "classes": np.array(["cat", "dog"])},
        {name: tensor.numpy() for name, tensor in changed().items()},
        {"state_dict": under("model.") | {"criterion.weight": torch.ones(2)}},
        {"net": changed(), "swa_n": torch.tensor(5)},
        torch.optim.swa_utils.AveragedModel(changed_network()).state_dict(),
    ],
)  # fmt: skip
def test_weights_under_a_key_or_a_prefix_reach_the_model(file, nested):
    assert_loaded(file(nested, ".pth"))


@pytest.mark.parametrize(
    ("nested", "words"),
    [
        ({"generator": changed(), "critic": changed()}, "several entries hold tensors by name.*critic, generator"),
        (
            {"model": changed(), "model_ema": changed()},
            r'choose one: found = torch.load\(".*", weights_only=True\); torch.save\(found\["model"\], "weights.pth"\)',
        ),
        (
            {"state_dict": under("student.") | under("teacher.")},
            r"2 times, below student\. and teacher\.; keep one: .* if name.startswith\(\"student\.\"\)",
        ),
        ({"epoch": 3}, "does not contain a state_dict"),
        (under("0."), "missing tensors"),  # a layer of the model is called so: no wrapper
    ],
)  # fmt: skip
def test_what_is_no_wrapper_is_refused(file, nested, words):
    with pytest.raises(UserError, match=words):
        load_weights(network(), file(nested, ".pth"))


def test_the_last_layer_may_stay_as_drawn(file):
    tensors = {name: tensor for name, tensor in changed().items() if not name.startswith("2.")}
    module = network()
    load_weights(module, file(tensors | {"2.weight": torch.ones(7, 3)}), ["2."])
    assert torch.equal(module[0].weight, tensors["0.weight"])
    assert torch.equal(module[2].weight, network()[2].weight)


@pytest.mark.parametrize(
    ("changes", "without", "told"),
    [
        ({"0.bias": None}, [], r"missing tensors: 0\.bias"),
        ({"extra": torch.ones(1)}, [], "unexpected tensors: extra"),
        ({"2.weight": torch.ones(5, 3)}, [], r"another shape: 2\.weight \(5 x 3 in the file, 2 x 3 in the model\)"),
        ({"0.bias": torch.tensor([0, float("nan"), 1])}, [], r"does not fit the model: tensors with NaN: 0\.bias"),
        ({}, ["fc"], "no weight of the model begins with 'fc'"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_named(file, changes, without, told):
    tensors = {name: tensor for name, tensor in (changed() | changes).items() if tensor is not None}
    with pytest.raises(UserError, match=told):
        load_weights(network(), file(tensors), without)


def test_infinite_masks_are_loaded(file):
    load_weights(network(), file(changed() | {"1.running_var": torch.tensor([1.0, float("inf"), 1.0])}))


class Mode(Enum):
    FAST = 1


SCHEDULE = torch.optim.lr_scheduler.StepLR(torch.optim.SGD(network().parameters(), 0.1), 3)
TYPES = {
    "datetime.datetime": datetime(2026, 1, 1),
    "pathlib.PosixPath": Path("folder"),
    "collections.defaultdict": defaultdict(list),
    ".Mode": Mode.FAST,
    "torch.optim.lr_scheduler.StepLR": SCHEDULE,
}


@pytest.mark.parametrize(("name", "value"), TYPES.items(), ids=TYPES)
def test_a_type_that_is_not_plain_is_named(file, name, value):
    """The file is not damaged; the two lines extract what the model needs."""
    path = file({"state_dict": changed(), "more": value}, ".pth")
    with pytest.raises(UserError, match=rf"weights.pth contains \S*{name}, whose code would run") as refusal:
        load_weights(network(), path)
    extract(str(refusal.value), path)


@pytest.mark.parametrize(
    ("saved", "suffix", "words"),
    [
        (changed_network(), ".pt", "is a whole network, whose code would run on loading"),
        ({"a": changed(), "b": network().state_dict()}, ".pth", "choose one"),
        (under("a.") | under("b."), ".pth", "keep one"),
    ],
)
def test_the_lines_of_the_remedy_extract_the_weights(file, saved, suffix, words):
    path = file(saved, suffix)
    with pytest.raises(UserError, match=words) as refusal:
        load_weights(network(), path)
    extract(str(refusal.value), path)


def extract(sentence, path):
    """Run the lines of a refusal; what they write fits the model."""
    written = f"{path}.pth"
    lines = re.search(r'found = torch.load.*"weights.pth"\)', sentence)[0]
    exec(lines.replace('"weights.pth"', repr(written)))
    assert_loaded(written)


@pytest.mark.parametrize("name", ["bad.pt", "bad.safetensors"])
@pytest.mark.parametrize("content", [b"junk", b"", b"\x90" * 20, b"\x80\x02.", b"PK\x03\x04junk"])
def test_damaged_files_are_refused(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=rf"model\.weights: .*{name} (cannot be read|is damaged)"):
        load_weights(network(), str(tmp_path / name))


@pytest.mark.parametrize(
    "start", ["version https://git-lfs.github.com/spec/v1", "<!DOCTYPE html><html lang=en>"]
)
def test_a_text_in_place_of_weights_is_named(tmp_path, start):
    (tmp_path / "weights.pth").write_text(f"{start}\noid sha256:4d7a\n")
    message = f"begins with '{start[:30]}.*', as a pointer of Git LFS .* or a web page"
    with pytest.raises(UserError, match=message):
        load_weights(network(), str(tmp_path / "weights.pth"))


def test_changed_weights_are_another_run(file, tmp_path):
    """Changed weights change the fingerprint, so that a training does not resume from a checkpoint of the old weights."""
    (tmp_path / "manifest.json").write_text("{}")
    keys = set()
    for add in (0.0, 1.0, 0.0):
        path = file({"weight": torch.zeros(2) + add})
        task = Task("e", "r", Run(model={"weights": path}), 0, None, 1, tmp_path / "manifest.json", tmp_path)
        keys.add(task.fingerprint)
    assert len(keys) == 2


@pytest.mark.exhaustive
@pytest.mark.processes
def test_a_run_goes_on_from_another_s_weights(tmp_path):
    """With a learning rate of almost 0 the second run keeps the accuracy of the first run."""
    common = {"ranks": 2, "parallel": {"ranks": 2, "transport": "simulated"}}
    first = training(tmp_path / "first", **common, train={"epochs": 2})
    first.finish()
    tuned = training(
        tmp_path / "tuned", **common, model={"weights": str(first.job / "model.safetensors")},
        train={"epochs": 1, "optimizer": {"name": "sgd", "lr": 1e-9, "momentum": 0.0}},
    )  # fmt: skip
    tuned.finish()
    assert tuned.rows[0]["val_accuracy"] == pytest.approx(first.rows[1]["val_accuracy"], abs=1e-6)
