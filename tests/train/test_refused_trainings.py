"""Trainings that are refused: models, data and losses with which no training is possible.

test_gan_guarantees.py has the settings of GANs, test_elastic.py other numbers of ranks.
"""

import json
import os
import re
import shutil

import pytest
from helpers.store_folder import store_folder
from helpers.training_here import digits, training_here

OUTPUTS = ("model.safetensors", "history.csv", "summary.json", "trace.json", "log.txt", "evaluation.json")
NORMALIZED = "return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 10))"
MODELS = {
    "raise ValueError('too deep')": "ValueError: too deep",
    "return 42": "returned int; it must return a torch.nn.Module",
    "return torch.nn.Flatten()": "no trainable parameter",
    "import nowhere": "No module named 'nowhere'",
    NORMALIZED: "in step 3 of each epoch, on rank 0: batch normalization cannot normalize",
}


@pytest.mark.parametrize("body", MODELS)
def test_a_model_that_cannot_be_trained(tmp_path, body):
    (tmp_path / "net.py").write_text(f"import torch\n\n\ndef build(shape, classes):\n    {body}\n")
    run = training_here(tmp_path, model={"name": "net.py:build", "args": {}}, train={"batch_size": 324})
    said = run.finish(expect=2)
    assert MODELS[body] in said.splitlines()[-1]
    assert "Traceback" not in said
    assert not run.epochs_done()


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


def test_more_workers_than_samples(tmp_path):
    said = training_here(tmp_path, ranks=3, data={"validation": 0.9995}).finish(expect=2)
    assert "3 ranks for 1 training samples" in said


def test_an_unreadable_shard(tmp_path):
    shutil.copytree(digits().parent, tmp_path / store_folder())
    shard = next((tmp_path / store_folder()).glob("train-*.h5"))
    os.truncate(shard, 1000)
    said = training_here(tmp_path).finish(expect=2)
    assert shard.name in said
    assert f"rm -f {shard.relative_to(tmp_path)}" in said


def test_a_redrawn_graph_that_is_never_connected_ends_the_training_in_its_round(tmp_path):
    graph = {"name": "erdos_renyi", "p": 0.25, "redraw_every": 1, "gen_attempts": 5}
    run = training_here(tmp_path, "dsgd", 10, topology=graph)
    said = run.finish(expect=2).splitlines()[-1]
    assert re.search(
        r"topology\.p: none of 5 graphs of 10 nodes drawn for round [1-9]\d* of erdos_renyi is connected at p 0\.25; "
        r"change p or raise topology\.gen_attempts",
        said,
    )
