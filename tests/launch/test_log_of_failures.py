"""state/log.txt has the error that the terminal shows, with the traceback or the last lines of output."""

import os
import signal

import pytest
from helpers.training_process import training, under_way

pytestmark = pytest.mark.processes

MODEL = """
import os
import torch

class Net(torch.nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.layer = torch.nn.Linear(64, classes)

    def forward(self, x):
        # Only in a rank: the checks before the start run the model, too.
        if "PMI_RANK" in os.environ:
            {failure}
        return self.layer(x.flatten(1))

def build(shape, classes):
    return Net(classes)
"""


def failing(folder, failure, **changes):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "net.py").write_text(MODEL.format(failure=failure))
    return training(folder, ranks=2, model={"name": "net.py:build"}, **changes)


def error_line(said):
    """Return the last line of the output that is an error."""
    return [line for line in said.splitlines() if "error: " in line][-1].partition("error: ")[2]


@pytest.mark.parametrize(
    ("failure", "status", "traced"),
    [
        ('raise ValueError("the weather")', 2, "ValueError: the weather"),
        ('raise MemoryError("no memory left")', 1, "MemoryError: no memory left"),
    ],
    ids=["user error", "out of memory"],
)
def test_an_error_of_a_rank(tmp_path, failure, status, traced):
    run = failing(tmp_path, failure)
    said = run.finish(expect=status)
    log = (run.job / "state/log.txt").read_text()
    assert error_line(said) in log
    assert traced in log
    assert "Traceback (most recent call last)" in log
    assert "net.py" in log


def test_a_killed_rank(tmp_path):
    run = training(tmp_path, ranks=2, train={"epochs": 50})
    with under_way(run, 1) as process:
        os.kill(run.pid(1), signal.SIGKILL)
        said, _ = process.communicate(timeout=200)
    log = (run.job / "state/log.txt").read_text()
    assert error_line(said) in log
    assert "rank 1" in error_line(said)


def test_a_missing_launcher(tmp_path):
    run = training(tmp_path, ranks=2)
    said = run.finish("--launcher", "no-such-launcher", expect=2)
    assert error_line(said) in (run.job / "state/log.txt").read_text()
    assert "cannot start the ranks with 'no-such-launcher'" in error_line(said)
