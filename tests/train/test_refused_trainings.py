"""Trainings that are refused: models, data and losses with which no training is possible.

test_gan_guarantees.py has the settings of GANs, test_elastic.py other numbers of ranks.
"""

import json
import re

import pytest
from helpers.training_here import training_here

OUTPUTS = ("model.safetensors", "history.csv", "summary.json", "trace.json", "log.txt", "evaluation.json")


@pytest.mark.parametrize("algorithm", ["allreduce", "downpour"])
def test_a_loss_that_is_not_a_number(tmp_path, algorithm):
    run = training_here(tmp_path, algorithm, 3, train={"optimizer": {"lr": 1e30}})
    said = run.finish(expect=2)
    assert "the loss became" in said.splitlines()[-1]
    assert "train.optimizer.lr" in said
    assert "Traceback" not in said
    assert not [name for name in OUTPUTS if (run.job / name).exists()]
    [failure] = (run.job / "state/failures").iterdir()
    assert json.loads(failure.read_text())["reason"] == "diverged"


def test_a_redrawn_graph_that_is_never_connected_ends_the_training_in_its_round(tmp_path):
    graph = {"name": "erdos_renyi", "p": 0.25, "redraw_every": 1, "gen_attempts": 5}
    run = training_here(tmp_path, "dsgd", 10, topology=graph)
    said = run.finish(expect=2).splitlines()[-1]
    assert re.search(
        r"topology\.p: none of 5 graphs of 10 nodes drawn for round [1-9]\d* of erdos_renyi is connected at p 0\.25; "
        r"change p or raise topology\.gen_attempts",
        said,
    )
