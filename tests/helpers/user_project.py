"""A project with files of the user of every kind, and one edit of each file that changes the result."""

import os
from pathlib import Path
from typing import Any, NamedTuple

import torch
import yaml

FILES = {
    "my_model.py": """
import torch
from torch import nn

from layers import SLOPE

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head, self.other = nn.Linear(64, 16), nn.Linear(16, 10), nn.Linear(16, 10)

    def forward(self, x):
        hidden = nn.functional.leaky_relu(self.body(x.flatten(1)), SLOPE)
        return 1.0 * self.head(hidden), self.other(hidden)

def net(shape, classes):
    return Net()
""",
    "layers.py": "SLOPE = 0.1\n",
    "output_loss.py": """
from torch.nn.functional import cross_entropy

def loss(outputs, targets):
    return 1.0 * cross_entropy(outputs, targets, reduction="none")
""",
    "metric.py": """
def share(outputs, targets):
    return 1.0 * (outputs.argmax(1) == targets)
""",
    "compressor.py": """
import torch

from nnlo_lib import Compressor

class Scaled(Compressor):
    def size(self, vector):
        return 4 * vector.numel()

    def encode(self, vector, step, rank):
        return (1.0 * vector).view(torch.uint8)

    def decode(self, payload, vector):
        vector.copy_(payload.clone().view(vector.dtype))
""",
    "algorithm.py": """
from nnlo_lib import Algorithm, Capabilities

class Mean(Algorithm):
    capabilities = Capabilities(one_model=True)

    def on_gradient(self, replica, share):
        self.comm.allreduce(replica.grad)
        replica.grad.mul_(1.0 / self.comm.size)

    def before_evaluation(self, replica):
        pass
""",
    "problem.py": """
import torch
from torch.nn.functional import cross_entropy

from nnlo_lib import BatchLoss, Problem

class Classes(Problem):
    names = ("loss",)

    def compute_loss(self, module, inputs, targets, step):
        losses = 1.0 * cross_entropy(module(*inputs), targets, reduction="none")
        return BatchLoss(losses.mean(), lambda: self._sums(losses.detach()))

    @torch.no_grad()
    def measure(self, module, inputs, targets):
        return self._sums(1.0 * cross_entropy(module(*inputs), targets, reduction="none"))

    def _sums(self, losses):
        return torch.tensor([len(losses), losses.sum()], dtype=torch.float64)
""",
}
FILES["loss.py"] = FILES["output_loss.py"]
RUNS: dict[str, dict[str, Any]] = {
    "network": {
        "model": {"name": "my_model.py:net", "weights": "first.pt"},
        "loss": {"0": "cross_entropy", "1": "output_loss.py:loss"},
        "metrics": ["metric.py:share@1"],
        "compression": {"name": "compressor.py:Scaled"},
    },
    "algorithm": {"algorithm": {"name": "algorithm.py:Mean"}, "loss": "loss.py:loss"},
    "problem": {"problem": {"name": "problem.py:Classes"}},
}
COMMON: dict[str, Any] = {
    "name": "mine",
    "data": {"dataset": "digits", "validation": 0.2},
    "model": {"name": "simplemlp", "args": {"hidden": 8, "layers": 1}},
    # Not Adam, whose steps do not depend on the scale of the gradients.
    "train": {"epochs": 1, "batch_size": 200, "optimizer": {"name": "sgd", "lr": 0.01}},
    "parallel": {"ranks": 2, "transport": "simulated"},
}
SPACE = {"train.optimizer.lr": [0.1, 0.01]}


class Edit(NamedTuple):
    """A file to edit, and the run that depends on it."""

    file: str
    run: str


NETWORK = ("my_model.py", "layers.py", "first.pt", "output_loss.py", "metric.py", "compressor.py")
EDITS = [Edit(file, "network") for file in NETWORK]
EDITS += [Edit("algorithm.py", "algorithm"), Edit("loss.py", "algorithm"), Edit("problem.py", "problem")]


def write_project(folder: Path) -> None:
    """Write the user's files and the experiment mine.yaml, whose runs use them."""
    for name, text in FILES.items():
        (folder / name).write_text(text)
    _write_weights(folder / "first.pt", 0)
    (folder / "mine.yaml").write_text(yaml.safe_dump(COMMON | {"runs": RUNS}))


def search_settings(run: str) -> dict[str, Any]:
    """Return the settings of a search whose trials use the files of a run."""
    # Sections replace each other, because a saved network has other arguments than the built-in one.
    return COMMON | RUNS[run] | {"search": {"space": SPACE, "trials": 2}}


def edit(folder: Path, file: str) -> None:
    """Change a file so that the training gives another result."""
    path = folder / file
    if path.suffix == ".pt":
        _write_weights(path, 1)
    else:
        path.write_text(path.read_text().replace("1.0", "0.9").replace("0.1", "0.5"))
    # Python takes an edit in the same second, with the same size, for the code that it has compiled.
    os.utime(path, (path.stat().st_mtime + 10,) * 2)


def _write_weights(path: Path, seed: int) -> None:
    generator, weights = torch.Generator().manual_seed(seed), {}
    for name, shape in {"body": (16, 64), "head": (10, 16), "other": (10, 16)}.items():
        weights[f"{name}.weight"] = 0.1 * torch.randn(shape, generator=generator)
        weights[f"{name}.bias"] = torch.zeros(shape[0])
    torch.save(weights, path)
