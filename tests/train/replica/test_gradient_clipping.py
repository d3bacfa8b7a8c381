"""Gradient clipping limits the norm of the vector that the optimizer applies: local, exchanged or received."""

import json

import numpy as np
import pytest
import torch
from helpers.algorithm_trainings import SYNCHRONOUS, rows, task
from pydantic import ValidationError
from torch import nn

from nnlo_lib.algorithms.base import SampleShare
from nnlo_lib.algorithms.collective.allreduce import AllReduce
from nnlo_lib.algorithms.parameter_server.downpour import Downpour
from nnlo_lib.comm.simulated.communicator import SimulatedWorld
from nnlo_lib.config import Experiment
from nnlo_lib.config.optimizer import SGDConfig
from nnlo_lib.train.optimizers.factory import attach_optimizer
from nnlo_lib.train.preemption import StopFlag
from nnlo_lib.train.rank import train_simulated
from nnlo_lib.train.replica.replica import Replica

LR, SIZE = 0.1, 12


def replica(clip_norm):
    """Return a replica of two layers with SIZE parameters, all zero."""
    module = nn.Sequential(nn.Linear(3, 3), nn.Flatten()).double()
    for parameter in module.parameters():
        parameter.data.zero_()
    ours = Replica(module)
    attach_optimizer(ours, SGDConfig(lr=LR))
    ours.clip_norm = clip_norm
    return ours


def gradient(rank):
    return torch.from_numpy(np.random.default_rng(rank).normal(size=SIZE))


def clipped(vector, norm):
    """Return the vector clipped by torch's own function."""
    parameter = nn.Parameter(torch.zeros_like(vector))
    parameter.grad = vector.clone()
    nn.utils.clip_grad_norm_([parameter], norm)
    return parameter.grad


@pytest.mark.parametrize("norm", [0.5, 1e6])
def test_a_step_is_torchs(norm):
    ours = replica(norm)
    ours.grad.copy_(gradient(0))
    ours.step()
    torch.testing.assert_close(ours.theta, -LR * clipped(gradient(0), norm), rtol=1e-12, atol=0)
    assert float(ours.theta.norm()) <= LR * norm


def test_allreduce_clips_the_exchanged_gradient():
    counts = (3, 5, 8)

    def program(comm):
        ours, share = replica(0.5), SampleShare(counts[comm.rank], sum(counts))
        algorithm = AllReduce(comm)
        ours.grad.copy_(gradient(comm.rank))
        algorithm.on_batch(ours, share)
        algorithm.on_gradient(ours, share)
        ours.step()
        return ours.theta.tolist()

    mean = sum(count * gradient(rank) for rank, count in enumerate(counts)) / sum(counts)
    wanted = -LR * clipped(mean, 0.5)
    first, *others = SimulatedWorld(3).run(program)
    torch.testing.assert_close(torch.tensor(first, dtype=torch.float64), wanted, rtol=1e-12, atol=0)
    assert all(other == first for other in others)


def test_a_server_clips_what_it_was_sent():
    def program(comm):
        ours = replica(0.5)
        ours.grad.copy_(gradient(0) * 3)
        return Downpour(comm).update(ours, 1).tolist() if comm.rank == 0 else None

    found = torch.tensor(SimulatedWorld(2).run(program)[0], dtype=torch.float64)
    torch.testing.assert_close(found, -LR * clipped(gradient(0) * 3, 0.5), rtol=1e-12, atol=0)


@pytest.mark.parametrize(
    "case", ["allreduce", "average, groups", "downpour, synchronous", "dsgt", "dinno", "easgd, synchronous"]
)
def test_no_optimizer_is_given_more(tmp_path, manifest, case, monkeypatch):
    """Every algorithm's steps, with a plain SGD, are at most lr * clip_norm long."""
    lengths, step = [], Replica.step

    def measured(self):
        before = self.theta.clone()
        step(self)
        lengths.append(float((self.theta - before).norm()))

    monkeypatch.setattr(Replica, "step", measured)
    train = {"clip_norm": 0.01, "precision": "float64", "optimizer": {"name": "sgd", "lr": 0.5}}
    job = task(tmp_path / "job", manifest, case, SYNCHRONOUS[case] | {"train": train | {"epochs": 1}})
    assert train_simulated(job, StopFlag())
    assert len(lengths) > 10
    assert max(lengths) <= 0.5 * 0.01 * (1 + 1e-9)
    assert max(lengths) > 0.5 * 0.0099


def test_clipping_keeps_replicas_equal(tmp_path, manifest):
    job = task(tmp_path / "job", manifest, "allreduce", {"train": {"clip_norm": 0.1}})
    assert train_simulated(job, StopFlag())
    assert [row["invariant"] for row in rows(job)] == [0, 0]
    assert json.loads((job.folder / "summary.json").read_text())["config"]["train"]["clip_norm"] == 0.1


def test_nothing_to_clip_is_refused():
    run = {"algorithm": {"name": "prox_pda"}, "train": {"clip_norm": 1.0}, "topology": {"name": "cycle"}}
    with pytest.raises(ValidationError, match="prox_pda has no optimizer, so gradients cannot be clipped"):
        Experiment.model_validate(run)
