"""Weights of whole trainings on several ranks, equal to a loop in torch on all samples at once, in float64.

Each step uses all samples, so that the order of the samples does not matter; ranks and parts of batches have
different numbers of samples.
"""

import math

import numpy as np
import pytest
import torch
from helpers.oracles.losses import categorical_hinge, entropy, entropy_of_decisions, huber, squares
from helpers.oracles.schedules import rates_of
from safetensors.torch import load_file
from scipy import stats
from torch import nn, optim

from nnlo_lib.config import Run
from nnlo_lib.state.training_records import read_rows
from nnlo_lib.train.rank import train_simulated
from nnlo_lib.train.rank_process import StopFlag
from nnlo_lib.train.task import Task, prepare_dataset

SAMPLES, EPOCHS, TOLERANCE = 50, 9, 1e-10
NETWORK = """
import torch
from torch import nn


def network(shape, outputs):
    with torch.random.fork_rng():
        torch.manual_seed(3)
        return nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, outputs))
"""


class ScheduleFreeSGD(optim.Optimizer):
    """Defazio et al. 2024, eqs. 1 to 4, with a constant rate: x is the mean of z."""

    def __init__(self, parameters):
        super().__init__(parameters, {"lr": 0.0})
        self.done = 0

    @torch.no_grad()
    def step(self):
        self.done += 1
        for y in self.param_groups[0]["params"]:
            seen = self.state[y].setdefault("z", [y.clone()])
            seen.append(seen[-1] - self.param_groups[0]["lr"] * y.grad)
            self.state[y]["x"] = torch.stack(seen[1:]).mean(0)
            y.copy_(0.1 * seen[-1] + 0.9 * self.state[y]["x"])


CASES = {
    "smoothed classes, nadam": (
        {"problem": {"name": "classification", "label_smoothing": 0.2}},
        lambda outputs, labels: entropy(outputs, labels, 0.2),
        {"name": "nadam", "lr": 0.05, "weight_decay": 0.1},
        (optim.NAdam, {"weight_decay": 0.1}),
        {"schedule": {"name": "cosine", "final": 0.01}, "warm_up": {"epochs": 3}},
    ),
    "hinge, clipped sgd": (
        {"loss": "hinge", "metrics": ["accuracy"]},
        categorical_hinge,
        {"name": "sgd", "lr": 0.5, "momentum": 0.9, "nesterov": True},
        (optim.SGD, {"momentum": 0.9, "nesterov": True}),
        {"schedule": {"name": "one_cycle", "rise": 0.95}, "clip_norm": 0.3},
    ),
    "balanced classes, sgd": (
        {"problem": {"class_weights": "balanced"}},
        lambda outputs, labels: (
            entropy(outputs, labels) * (SAMPLES / 4 / torch.bincount(labels).double())[labels]
        ),
        {"name": "sgd", "lr": 0.1},
        (optim.SGD, {}),
        {},
    ),
    "binary decisions, adamw": (
        {"loss": "binary_cross_entropy"},
        entropy_of_decisions,
        {"name": "adamw", "lr": 0.1, "amsgrad": True},
        (optim.AdamW, {"amsgrad": True}),
        {"schedule": {"name": "step", "every": 4, "factor": 0.5}, "scale_lr": "sqrt"},
    ),
    "huber, rmsprop": (
        {"problem": {"name": "regression", "huber_delta": 0.3}, "loss": "huber"},
        lambda outputs, labels: huber(outputs, labels, 0.3),
        {"name": "rmsprop", "lr": 0.01, "momentum": 0.5},
        (optim.RMSprop, {"alpha": 0.9, "momentum": 0.5}),
        {"schedule": {"name": "polynomial"}},
    ),
    "squares, adagrad": (
        {"problem": "regression", "loss": "mse"},
        squares,
        {"name": "adagrad", "lr": 0.2, "lr_decay": 0.1},
        (optim.Adagrad, {"lr_decay": 0.1, "eps": 1e-10}),
        {"schedule": {"name": "exponential", "factor": 0.8}},
    ),
    "averaged weights, sgd": (
        {}, entropy, {"name": "sgd", "lr": 0.5}, (optim.SGD, {}), {"ema": {"decay": 0.3}},
    ),
    "the average of schedule_free": (
        {}, entropy, {"name": "schedule_free", "lr": 0.5, "beta2": 0.0}, (ScheduleFreeSGD, {}), {},
    ),
}  # fmt: skip


@pytest.fixture
def files(tmp_path):
    """Write inputs, classes and numbers of SAMPLES samples."""
    drawn = np.random.default_rng(1)
    inputs = drawn.normal(size=(SAMPLES, 3)).astype(np.float32)
    classes = np.arange(SAMPLES) % 7 % 4
    numbers = drawn.normal(size=(SAMPLES, 4))
    for name, labels in (("classes", classes), ("numbers", numbers)):
        for split in ("train", "test"):
            np.savez(tmp_path / f"{name}-{split}.npz", features=inputs, labels=labels)
    (tmp_path / "net.py").write_text(NETWORK)
    return tmp_path


def trained(files, labels, ranks, accumulate, settings, train):
    """Return the published weights of a training on the arrays `labels`, with the parts of a batch accumulated."""
    splits = {split: [f"{labels}-{split}.npz"] for split in ("train", "test")}
    arrays = {"name": "arrays", **splits, "one_hot": labels == "classes"}
    batch = {"epochs": EPOCHS, "batch_size": math.ceil(SAMPLES / ranks), "accumulate": accumulate}
    settings = settings | {
        "data": {"dataset": "mine", "source": str(files), "reader": arrays, "validation": 0.0},
        "model": {"name": f"{files}/net.py:network"},
        "parallel": {"ranks": ranks, "transport": "simulated"},
        "train": batch | {"precision": "float64"} | train,
    }
    run, manifest = Run.model_validate(settings), files / "store" / "manifest.json"
    prepare_dataset(run.data, manifest.parent)
    assert train_simulated(Task("t", "run", run, 0, None, 1, manifest, files / "job"), StopFlag())
    return load_file(files / "job/model.safetensors")


def followed(files, labels, formula, kind, rates, clip=None, ema=None):
    """Return the weights after a loop of torch with an optimizer and its options `kind`, and a rate of each step."""
    names: dict = {}
    exec(NETWORK, names)
    module, arrays = names["network"]((3,), 4).double(), np.load(files / f"{labels}-train.npz")
    inputs, targets = torch.from_numpy(arrays["features"]).double(), torch.from_numpy(arrays["labels"])
    optimizer = kind[0](module.parameters(), **kind[1])
    average = None
    for step, rate in enumerate(rates):
        optimizer.zero_grad()
        formula(module(inputs), targets).mean().backward()
        if clip:
            nn.utils.clip_grad_norm_(module.parameters(), clip)
        optimizer.param_groups[0]["lr"] = rate
        optimizer.step()
        if ema:
            decay = min(ema["decay"], (1 + step) / (10 + step))
            last = {name: each.clone() for name, each in module.state_dict().items()}
            before = average or last
            average = {name: decay * before[name] + (1 - decay) * last[name] for name in last}
    if kind[0] is ScheduleFreeSGD:
        return {name: optimizer.state[each]["x"] for name, each in module.named_parameters()}
    return average or module.state_dict()


@pytest.mark.parametrize(
    ("case", "ranks", "accumulate"), [*((case, 3, 4) for case in CASES), (next(iter(CASES)), 1, 1)]
)
def test_trainings_follow_a_loop_in_torch(files, case, ranks, accumulate):
    settings, formula, optimizer, kind, train = CASES[case]
    labels = "numbers" if settings.get("problem", {}) == "regression" or "huber" in case else "classes"
    found = trained(files, labels, ranks, accumulate, settings, {"optimizer": optimizer, **train})
    others = {key: value for key, value in train.items() if key in ("clip_norm", "ema")}
    scheduled = {key: value for key, value in train.items() if key not in others}
    rates = rates_of(EPOCHS, 1, ranks, lr=optimizer["lr"], **scheduled)
    expected = followed(files, labels, formula, kind, rates, *map(others.get, ("clip_norm", "ema")))
    assert found.keys() == expected.keys()
    for name, values in found.items():
        torch.testing.assert_close(values, expected[name], rtol=TOLERANCE, atol=TOLERANCE)


def mixture_of(epoch, inputs, classes, alpha):
    """Return inputs, both classes and the share of the first, one sample after another in the order of the epoch (eqs. 1 and 2)."""
    words = np.random.PCG64(np.random.SeedSequence([0, 1, epoch])).random_raw(SAMPLES)
    order, found = np.argsort(words, kind="stable"), []
    for place, (one, other) in enumerate(zip(order, np.roll(order, -1), strict=True)):
        stream = np.random.Philox(np.random.SeedSequence([0, 5, epoch])).advance(place)
        share = stats.beta.ppf((stream.random_raw(2)[1] >> np.uint64(11)) / 2**53, alpha, alpha)
        weight = np.float32(share)
        sample = weight * inputs[one] + (1 - weight) * inputs[other]
        found.append((sample.astype(np.float64), classes[one], classes[other], share))
    return [torch.from_numpy(np.array(each)) for each in zip(*found, strict=True)]


@pytest.mark.parametrize("ranks", [1, 3])
def test_mixed_samples_are_the_same_for_any_number_of_ranks(files, ranks):
    settings = {
        "problem": {"mixup": 0.4, "class_weights": {"1": 3}},
        "metrics": ["accuracy", "balanced_accuracy"],
    }
    found = trained(files, "classes", ranks, 2, settings, {"optimizer": {"name": "sgd", "lr": 0.3}})
    names: dict = {}
    exec(NETWORK, names)
    module, arrays = names["network"]((3,), 4).double(), np.load(files / "classes-train.npz")
    rows, weights = read_rows(files / "job/state/history.jsonl"), torch.tensor([1.0, 3, 1, 1]).double()
    for epoch in range(EPOCHS):
        inputs, *both, share = mixture_of(epoch, arrays["features"], arrays["labels"], 0.4)
        module.zero_grad()
        outputs, parts = module(inputs), (share, 1 - share)
        losses = [
            part * weights[each] * entropy(outputs, each) for part, each in zip(parts, both, strict=True)
        ]
        loss, right, counts = sum(losses).mean(), torch.zeros(4).double(), torch.zeros(4).double()
        for part, each in zip(parts, both, strict=True):
            right.index_add_(0, each, part * (outputs.argmax(1) == each))
            counts.index_add_(0, each, part)
        expected = loss.item(), right.sum().item() / SAMPLES, (right / counts).mean().item()
        names = ("train_loss", "train_accuracy", "train_balanced_accuracy")
        assert [rows[epoch][name] for name in names] == pytest.approx(expected, rel=1e-9)
        loss.backward()
        with torch.no_grad():
            for each in module.parameters():
                each -= 0.3 * each.grad
    for name, values in module.state_dict().items():
        torch.testing.assert_close(found[name], values, rtol=TOLERANCE, atol=TOLERANCE)
