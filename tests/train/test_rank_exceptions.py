"""An exception in one rank ends all ranks within seconds and reports the error of the failed rank, for every algorithm."""

import json
import time

import pytest
import yaml
from helpers.training_process import processes_of, training, wait

from nnlo_lib.config.algorithm import ALGORITHMS

pytestmark = pytest.mark.processes

FAILING = """
import os
from torch import nn

class Failing(nn.Linear):
    steps = 0

    def forward(self, images):
        self.steps += 1
        if os.environ.get("PMI_RANK") == "2" and self.steps == 4:
            raise ArithmeticError("the third step of rank 2")
        return super().forward(images.flatten(1))

def failing(shape, classes):
    return Failing(shape[0] * shape[1] * shape[2], classes)
"""
GRAPHS = {"d2": {"name": "cycle", "weights": "lazy_metropolis"}}
SECONDS = 30


def failing(folder, algorithm):
    """Return a training that fails on rank 2; leave out settings that its algorithm does not use."""
    (folder / "failing.py").write_text(FAILING)
    row = ALGORITHMS[algorithm]
    graph = {"topology": GRAPHS.get(algorithm, {"name": "cycle"})} if row.graph_properties else {}
    run = training(folder, algorithm, ranks=4, model={"name": "failing.py:failing"}, **graph)
    if row.step == "algorithm's":
        settings = yaml.safe_load((folder / "t.yaml").read_text())
        del settings["train"]["optimizer"]
        (folder / "t.yaml").write_text(yaml.safe_dump(settings))
    return run


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_an_exception_ends_all(tmp_path, algorithm):
    run = failing(tmp_path, algorithm)
    said = run.finish(expect=2)
    report = json.loads((run.job / "state/failures/2").read_text())
    assert time.time() - report["time"] < SECONDS
    sentence = "rank 2 failed: failing.py:11 in forward: ArithmeticError: the third step of rank 2; samples are 1 x 8 x 8"
    assert said.count(sentence) == 1
    assert "Traceback" not in said
    assert "Traceback" in report["traceback"]
    assert report["reason"] == "bad input"
    wait("no process is left", lambda: not processes_of(tmp_path), SECONDS)
