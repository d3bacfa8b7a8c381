"""Layer table and FLOP counts compared with published counts, hand computation and the model itself; times of iterations."""

import json
import re
import subprocess
import sys

import pytest
import torch
from helpers.nnlo_command import nnlo, refused
from helpers.requires import optional
from torch import nn
from torch.nn import functional

from nnlo_lib.config import Run
from nnlo_lib.models.factory import build_model
from nnlo_lib.models.keras.module import KerasNetwork
from nnlo_lib.models.layer_table_text import shape_text, si_count
from nnlo_lib.models.zoo.gan import Gan
from nnlo_lib.problems.base import build_problem
from nnlo_lib.problems.supervised import SupervisedProblem
from nnlo_lib.train.iteration_timing import WARM_UP, IterationTimes
from nnlo_lib.train.model_summary import summarize_model, training_flops

# multiply-add operations (1e9) of a forward pass at 224 x 224 pixels; torchvision's model pages list them as GFLOPS
# mobilenet_v1, whose convolutions are grouped: Howard et al. 2017, table 4.
PUBLISHED = {"resnet18": 1.814, "vgg16": 15.470, "densenet121": 2.834, "mobilenet_v1": 0.569}
MEAN_SQUARE = SupervisedProblem(lambda outputs, labels: outputs.flatten(1).square().mean(1) - labels, {})


def images(channels: int, side: int) -> tuple[torch.Tensor, ...]:
    return (torch.zeros(1, channels, side, side),)


@pytest.mark.parametrize("name", PUBLISHED)
def test_forward_passes_cost_what_is_published(name):
    with torch.device("meta"):  # meta tensors have no values, so no weights are drawn
        module = build_model(name, {}, (3, 224, 224), 1000, 0)
    forward, backward = summarize_model(module, images(3, 224)).flops
    assert forward / 2e9 == pytest.approx(PUBLISHED[name], rel=2e-3)
    # All layers except the first have two gradients, each as expensive as the forward pass of the layer.
    assert 1.9 < backward / forward < 2.0


def test_the_table_of_simplecnn_is_the_one_computed_by_hand():
    rows = summarize_model(build_model("simplecnn", {}, (1, 28, 28), 10, 0), images(1, 28)).layers
    found = [(row["type"], row["shape"], row["weights"], row["parameters"], row["flops"]) for row in rows]
    assert [row for row in found if row[3]] == [
        ("Conv2d", [4, 28, 28], [[4, 1, 3, 3]], 40, 2 * 4 * 28 * 28 * 9),
        ("Conv2d", [8, 28, 28], [[8, 4, 3, 3]], 296, 2 * 8 * 28 * 28 * 4 * 9),
        ("Linear", [128], [[128, 1568]], 200_832, 2 * 1568 * 128),
        ("Linear", [10], [[10, 128]], 1_290, 2 * 128 * 10),
    ]
    assert rows[0]["settings"] == "kernel=3, stride=1, padding=1"
    assert ("MaxPool2d", [8, 14, 14]) in [row[:2] for row in found]
    assert sum(row["bytes"] for row in rows) == 4 * 202_458


GROUPED = {  # operations of the forward pass: 2 x weights of an output x outputs
    "grouped": (nn.Conv2d(8, 12, 3, groups=4), 2 * (2 * 9) * 12 * 8 * 8),
    "depthwise": (nn.Conv2d(8, 8, 3, groups=8, stride=2), 2 * 9 * 8 * 4 * 4),
    "plain": (nn.Conv2d(8, 12, 3), 2 * (8 * 9) * 12 * 8 * 8),
    # Each input is multiplied by the weights of the outputs of its group.
    "transposed": (nn.ConvTranspose2d(8, 12, 3, groups=4), 2 * (3 * 9) * 8 * 10 * 10),
}


@pytest.mark.parametrize("name", GROUPED)
def test_a_backward_pass_of_groups_costs_what_is_computed_by_hand(name):
    """The gradients of the input and of the weights have the products of the forward pass."""
    layer, forward = GROUPED[name]
    first = 2 * 8 * 8 * 10 * 10  # without the gradient of the images
    module = nn.Sequential(nn.Conv2d(8, 8, 1), layer)
    assert summarize_model(module, images(8, 10)).flops == (first + forward, first + 2 * forward)
    step = training_flops(module, MEAN_SQUARE, images(8, 10), torch.zeros(1))
    assert step == 2 * first + 3 * forward


def test_a_model_of_keras_costs_what_is_computed_by_hand(monkeypatch):
    monkeypatch.setenv("KERAS_BACKEND", "torch")
    keras = optional("keras")
    layers = [
        keras.layers.Input((6, 6, 2)),
        keras.layers.Conv2D(3, 3),
        keras.layers.Flatten(),
        keras.layers.Dense(5),
    ]
    module = KerasNetwork(keras.Sequential(layers), [(2, 6, 6)])
    convolution, dense = 2 * (2 * 9) * 3 * 4 * 4, 2 * 48 * 5
    assert summarize_model(module, images(2, 6)).flops == (convolution + dense, convolution + 2 * dense)
    assert training_flops(module, MEAN_SQUARE, images(2, 6), torch.zeros(1)) == 2 * convolution + 3 * dense


class Several(nn.Module):
    """Model with two inputs and a tuple as output.

    A layer is used twice, one is unused, a weight is shared and a parameter lies outside the layers.
    """

    def __init__(self) -> None:
        super().__init__()
        self.words, self.memory = nn.Embedding(11, 4), nn.LSTM(4, 6, batch_first=True)
        self.twice, self.tied, self.idle = nn.Linear(6, 6), nn.Linear(4, 11, bias=False), nn.Linear(2, 2)
        self.tied.weight = self.words.weight
        self.own = nn.Parameter(torch.ones(6, 4))

    def forward(self, words: torch.Tensor, offsets: torch.Tensor) -> tuple[torch.Tensor, dict]:
        states, _ = self.memory(self.words(words))
        return self.tied(self.twice(self.twice(states)) @ self.own), {"sum": functional.relu(offsets)}


SEVERAL = (torch.zeros(1, 9, dtype=torch.long), torch.zeros(1, 2))


def test_several_inputs_and_outputs_shared_and_idle_layers():
    module = Several()
    summary = summarize_model(module, SEVERAL)
    rows = {row["name"]: row for row in summary.layers}
    assert sum(row["parameters"] for row in rows.values()) == sum(p.numel() for p in module.parameters())
    assert rows["memory"]["shape"][0] == [9, 6]
    assert rows[""]["shape"] == [[9, 11], [2]]
    assert rows[""]["parameters"] == 24
    assert rows["memory"]["flops"] == 2 * 9 * 4 * 6 * (4 + 6)
    assert rows["twice"]["flops"] == 2 * (2 * 9 * 36)
    assert rows["tied"]["parameters"] + rows["words"]["parameters"] == 44
    assert (rows["idle"]["shape"], rows["idle"]["parameters"]) == (None, 6)
    assert sum(row["flops"] or 0 for row in rows.values()) == summary.flops[0]


def test_a_model_that_cannot_be_called_still_has_layers():
    summary = summarize_model(Several(), (torch.zeros(1, 9),))
    assert [row["name"] for row in summary.layers] == ["", "words", "memory", "twice", "tied", "idle"]
    assert summary.flops == (None, None)
    assert {row["shape"] for row in summary.layers} == {None}
    assert "FLOPs forward" not in summary.text


def test_scripted_models_and_both_networks_of_a_gan_are_described():
    scripted = torch.jit.script(nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2)))
    assert sum(row["parameters"] for row in summarize_model(scripted, (torch.zeros(1, 3),)).layers) == 26
    module = build_model("wgan", {}, (1, 28, 28), 0, 0)
    layers = summarize_model(module, images(1, 28)).layers
    assert sum(row["parameters"] for row in layers) == sum(p.numel() for p in module.parameters())
    assert {row["name"].split(".")[0] for row in layers} == {"generator", "critic"}
    assert all(row["shape"] for row in layers)


def test_text_aligns_and_totals():
    lines = summarize_model(nn.Linear(5, 3), (torch.zeros(1, 5),)).text.splitlines()
    assert lines[-2:] == ["18 parameters, 72 B", "per sample: 30 FLOPs forward (15 MACs), 30 FLOPs backward"]
    assert lines[2].split() == ["0", "Linear", "3", "3x5", "18", "30"]
    assert (si_count(3_628_146_688), shape_text([[1, 2], [3]]), shape_text(None)) == ("3.63 G", "1x2, 3", "")


def test_the_command_needs_no_data_where_the_catalog_knows_their_shape(tmp_path):
    (tmp_path / "t.yaml").write_text("name: t\nmodel: {name: simplecnn}\n")
    done = nnlo("model", "t.yaml", "--set", "data.dataset=mnist", folder=tmp_path)
    assert "allreduce: simplecnn on mnist" in done.stdout
    assert "202,458 parameters" in done.stdout
    own = ["--set", "data.dataset=mine", "--set", "data.source=.", "--set"]
    said = refused(nnlo("model", "t.yaml", *own, "data.reader={name: arrays, train: a.npz}", folder=tmp_path))
    assert "data.reader: file 'a.npz' not found in ." in said
    (tmp_path / "own.py").write_text("def read(folder, shard_size):\n    pass\n")
    said = refused(nnlo("model", "t.yaml", *own, "data.reader={name: own.py:read}", folder=tmp_path))
    assert "the sample shape of mine is unknown before the conversion; convert the data set" in said


SAMPLES = torch.zeros(2, 5)
CLASSIFIER = build_problem(Run.model_validate({"model": {"name": "simplecnn"}}))


def small_gan():
    """Return a generator 3 -> 5 and a critic 5 -> 4 -> 1; a product with an a x b matrix costs 2ab per sample."""
    critic = nn.Sequential(nn.Linear(5, 4, bias=False), nn.ReLU(), nn.Linear(4, 1, bias=False))
    return Gan(nn.Linear(3, 5, bias=False), critic, 3)


def problem(**settings):
    return build_problem(
        Run.model_validate({"model": {"name": "wgan"}, "loss": "non_saturating", "problem": settings})
    )


@pytest.mark.parametrize("every", [1, 2, 5])
def test_steps_of_a_gan(every):
    generator, first, second = 30, 40, 8
    critic = first + second
    # Critic: forward passes of real and generated samples; backward, no gradient of its inputs is needed.
    of_critic = generator + 2 * critic + 2 * (critic + second)
    # Generator: through the critic to the samples, and the generator's weights.
    of_generator = critic + critic + generator
    gan = problem(name="gan", critic_steps=every)
    found = training_flops(small_gan(), gan, (SAMPLES,), torch.zeros(2), every)
    assert found == of_critic + of_generator / every


def test_a_gradient_penalty_costs_a_pass_and_its_gradient():
    without = training_flops(small_gan(), problem(name="gan"), (SAMPLES,), torch.zeros(2))
    found = training_flops(
        small_gan(), problem(name="gan", gradient_penalty=10.0), (SAMPLES,), torch.zeros(2)
    )
    assert found >= without + 2 * 48


def test_a_loss_that_cannot_be_computed_is_unknown():
    """The labels do not fit the loss."""
    assert training_flops(nn.Linear(5, 3), CLASSIFIER, (SAMPLES,), torch.zeros(7, 2)) is None


LOOKS = {
    "a pass": lambda module: summarize_model(module, (SAMPLES,)).flops[1],
    "training": lambda module: training_flops(module, CLASSIFIER, (SAMPLES,), torch.zeros(2).long()),
}


@pytest.mark.parametrize("look", LOOKS.values(), ids=LOOKS)
def test_looking_changes_nothing(look):
    module = nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.Dropout(), nn.Linear(4, 3))
    module[2].eval()
    before, draws = {name: t.clone() for name, t in module.state_dict().items()}, torch.get_rng_state()
    assert look(module)
    assert all(torch.equal(before[name], tensor) for name, tensor in module.state_dict().items())
    assert torch.equal(draws, torch.get_rng_state())
    assert all(parameter.grad is None and not parameter.is_meta for parameter in module.parameters())
    assert [layer.training for layer in module] == [True, True, False, True]
    assert not any(layer._forward_hooks or layer._forward_pre_hooks for layer in module.modules())


@pytest.mark.processes
def test_a_summary_imports_nothing_that_costs_a_start_of_ranks_a_second():
    code = """
import sys, torch
from nnlo_lib.models.factory import build_model
from nnlo_lib.train.model_summary import summarize_model
module = build_model("resnet20", {}, (3, 32, 32), 10, 0)
assert summarize_model(module, [torch.zeros(1, 3, 32, 32)]).flops[1]
print({"torch._dynamo", "sympy", "scipy", "pandas"} & set(sys.modules))
"""
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "set()\n"


# `nnlo model --time`: iterations on one rank, without a data set


MODEL = """
import json

from torch import nn


class Noting(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers, self.calls = nn.Sequential(nn.Flatten(), nn.Linear(3072, 10)), []

    def forward(self, x):
        # The bias tells whether an iteration moved the model.
        self.calls.append([self.training, list(x.shape), x.std().item() > 0, self.layers[1].bias.tolist()])
        with open("calls.json", "w") as file:
            json.dump(self.calls, file)
        return self.layers(x)


def build(shape, classes):
    return Noting()
"""
EXPERIMENT = """
name: timed
data: {dataset: cifar10}
model: {name: net.py:build}
train: {batch_size: 7, optimizer: {name: adam}}
runs:
  one: {}
  two: {train: {batch_size: 5}}
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "net.py").write_text(MODEL)
    (tmp_path / "x.yaml").write_text(EXPERIMENT)
    return tmp_path


def test_iterations_are_those_of_a_training_with_made_up_samples(folder):
    done = nnlo("model", "x.yaml", "--run", "one", "--time", "3", folder=folder)
    assert done.returncode in (0, None), done.stderr
    text = "one: net.py:build on made-up samples as of cifar10\n3 iterations after 5 of warm-up, batch 7, cpu"
    assert text in done.stdout
    assert re.search(r"median \d+\.\d{3} ms \(gradient \d+\.\d{3}, optimizer \d+\.\d{3}; ", done.stdout)
    calls = json.loads((folder / "calls.json").read_text())
    assert [call[:3] for call in calls] == [[True, [7, 3, 32, 32], True]] * (WARM_UP + 3)
    assert all(call[3] == calls[0][3] for call in calls)
    assert {path.name for path in folder.iterdir()} - {"__pycache__"} == {"calls.json", "net.py", "x.yaml"}


def test_each_run_has_its_line(folder):
    text = nnlo("model", "x.yaml", "--time", "1", folder=folder).stdout
    assert [line.partition(":")[0] for line in text.splitlines() if "made-up" in line] == ["one", "two"]
    assert "batch 7" in text
    assert "batch 5" in text


def test_the_median_is_that_of_whole_iterations():
    times = IterationTimes([0.1, 0.3, 0.2], [0.25, 0.02, 0.05], 16, "cpu").text
    # Sums 0.35, 0.32 and 0.25: their median is not the sum of both medians, 0.25.
    assert "median 320.000 ms (gradient 200.000, optimizer 50.000; 250.000 to 350.000), 50 samples/s" in times


@pytest.mark.parametrize("number", ["0", "2.5"])
def test_numbers_of_iterations(folder, number):
    done = nnlo("model", "x.yaml", f"--time={number}", folder=folder)
    assert done.returncode == 2
    assert f"argument --time: expected a positive integer, got '{number}'" in done.stderr


def test_what_cannot_be_timed_is_refused(folder):
    no_gpu = nnlo("model", "x.yaml", "--time", "--set", "parallel.gpus_per_rank=1", folder=folder)
    if no_gpu.returncode:
        assert "needs GPU 0, but 0 are visible" in refused(no_gpu)
    (folder / "x.yaml").write_text(
        "data: {dataset: mine, reader: {name: arrays, train: '*.npz'}, source: .}\n"
    )
    assert "no file in . matches" in refused(nnlo("model", "x.yaml", "--time", folder=folder))
