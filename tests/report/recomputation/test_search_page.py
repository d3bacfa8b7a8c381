"""The page of a search equals what its raw files say: two folds, stopped and failed trials."""

import math

import numpy as np
import pytest
from helpers.recomputation.dense import held_back
from helpers.recomputation.experiment import audited_search
from helpers.recomputation.page_tests import SearchPageTests
from helpers.recomputation.raw import Job
from helpers.recomputation.tensors import read_tensors

# The first test of the module makes the experiment.
pytestmark = [pytest.mark.processes, pytest.mark.timeout(1200)]

MODEL = """
from torch import nn

class Net(nn.Sequential):
    def forward(self, inputs):
        self.calls = getattr(self, "calls", 0) + 1
        if self[3].in_features == 7 and self.calls > 5:
            raise ValueError("a network of width 7 cannot compute more than 5 batches")
        return super().forward(inputs)

def net(shape, classes, width, slope=0.0):
    return Net(nn.Flatten(), nn.Linear(64, width), nn.LeakyReLU(slope), nn.Linear(width, classes))
"""
SETTINGS = {
    "name": "hunt",
    "data": {"dataset": "digits"},
    "model": {"name": "net.py:net", "args": {"width": 8}},
    "train": {"epochs": 3, "batch_size": 50, "optimizer": {"name": "adam"}},
    "parallel": {"ranks": 1},
    "search": {
        "space": {
            "train.optimizer.lr": {"log_uniform": [0.001, 0.1]},
            "model.args.width": [4, 7, 16],
            "model.args.slope": {"uniform": [0.0, 0.3]},
        },
        "method": {"name": "random"},
        "trials": 12,
        "parallel": 2,
        "objective": {"metric": "val_accuracy"},
        "folds": {"k": 2},
        "fidelity": {"name": "asha", "first": 1, "factor": 3},
    },
}


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    folder = tmp_path_factory.mktemp("search")
    (folder / "net.py").write_text(MODEL)
    return audited_search(folder, SETTINGS)


class TestPage(SearchPageTests):
    """The page equals its raw files."""


def test_the_search_has_what_it_is_for(page):
    states = {trial.state for trial in page.raw.trials}
    assert states == {"finished", "stopped", "failed"}


def test_results_equal_those_of_a_plain_perceptron(page):
    for trial in [each for each in page.raw.trials if each.state == "finished"]:
        for fold in range(page.raw.fold_count):
            job = Job(page.raw.folder / f"trials/{trial.number:04d}/fold-{fold}")
            features, labels = held_back(job)
            tensors = read_tensors(job.folder / "model.safetensors")
            hidden = features / 16 @ tensors["1.weight"].T + tensors["1.bias"]
            hidden = np.where(hidden > 0, hidden, trial.point["model.args.slope"] * hidden)
            guesses = (hidden @ tensors["3.weight"].T + tensors["3.bias"]).argmax(1)
            last = trial.results[trial.number, fold, trial.rungs[-1]]["rows"][-1]
            assert math.isclose(last["val_accuracy"], (guesses == labels).mean(), abs_tol=1e-12)
