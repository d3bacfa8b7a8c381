"""`nnlo model --time`: iterations of a model on one rank, without a data set."""

import json
import re

import pytest
from helpers.nnlo_command import nnlo, refused

from nnlo_lib.train.iteration_timing import WARM_UP, IterationTimes

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
