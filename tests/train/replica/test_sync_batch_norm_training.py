"""Trainings with synchronized batch normalization over all ranks."""

import pytest
import torch
from helpers.algorithm_trainings import interrupt, manifest, measured, rows, task
from helpers.training_process import training
from pydantic import ValidationError
from safetensors.torch import load_file

from nnlo_lib.config import Experiment
from nnlo_lib.train.preemption import StopFlag
from nnlo_lib.train.rank import train_simulated

__all__ = ["manifest"]
SETTINGS = {
    "plain": {},
    "buckets": {"algorithm": {"name": "allreduce", "bucket_mb": 0.001}},
    "parts": {"train": {"accumulate": 3}},
    "bf16": {"train": {"precision": "bf16"}},
    "fp16": {"train": {"precision": "fp16"}},
    "sign": {"compression": {"name": "sign"}},
}
NETWORK = """
from torch import nn

def plain(shape, classes):
    return nn.Sequential(nn.Conv2d(shape[0], 4, 3, padding=1, stride=2), nn.BatchNorm2d(4), nn.ReLU(),
                         nn.Flatten(), nn.Linear(64, classes))
"""


@pytest.mark.long
@pytest.mark.parametrize("case", SETTINGS)
def test_it_resumes_to_the_same_bits(tmp_path, manifest, case):
    settings = SETTINGS[case] | {"parallel": {"ranks": 3, "sync_batch_norm": True}}
    whole, parts = (task(tmp_path / name, manifest, "allreduce", settings) for name in ("whole", "parts"))
    assert train_simulated(whole, StopFlag())
    interrupt(parts)
    assert measured(parts) == measured(whole)
    assert [row["invariant"] for row in rows(whole)] == [0, 0]


def weights_of(folder, ranks, transport="simulated", **parallel):
    folder.mkdir(parents=True)
    (folder / "network.py").write_text(NETWORK)
    run = training(
        folder, model={"name": "network.py:plain"}, data={"validation": 0.1005},
        train={"precision": "float64", "epochs": 2, "batch_size": 324 * 4 // ranks},
        parallel={"ranks": ranks, "transport": transport, **parallel},
    )  # fmt: skip
    run.finish()
    return load_file(run.job / "model.safetensors"), run.weights


@pytest.mark.processes
def test_four_ranks_are_one_and_all_transports_alike(tmp_path):
    """Four ranks equal one rank, although only one rank has a sample in the last step and all must normalize.

    The training has 1,297 samples in global batches of 1,296.
    """
    one, _ = weights_of(tmp_path / "one", 1)
    many, bits = weights_of(tmp_path / "many", 4, sync_batch_norm=True)
    for name, tensor in one.items():
        torch.testing.assert_close(many[name], tensor, rtol=0, atol=1e-10, msg=name)
    assert weights_of(tmp_path / "mpi", 4, "mpi", sync_batch_norm=True)[1] == bits


@pytest.mark.parametrize("name", ["average", "downpour", "dsgd"])
def test_only_ranks_that_step_together_normalize_together(name):
    run = {"algorithm": {"name": name}, "parallel": {"sync_batch_norm": True}}
    with pytest.raises(
        ValidationError, match=f"the ranks of {name} do not compute the gradient of a step together"
    ):
        Experiment.model_validate(run)
