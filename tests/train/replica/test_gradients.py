"""Gradients: clipping of the vector that the optimizer applies, and accumulation over the parts of a batch.

test_training_oracle.py compares clipped steps of several ranks with torch.
"""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from helpers.algorithm_trainings import SYNCHRONOUS, measured, task
from helpers.training_here import simulate
from pydantic import ValidationError
from torch import nn

from nnlo_lib.comm.simulated.communicator import SimulatedWorld
from nnlo_lib.config import Experiment
from nnlo_lib.data.loading.loader import Batch
from nnlo_lib.problems.base import build_problem
from nnlo_lib.train.replica.gradients import LocalGradients
from nnlo_lib.train.replica.precision import Precision
from nnlo_lib.train.replica.replica import Replica


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
    simulate(task(tmp_path / "job", manifest, case, SYNCHRONOUS[case] | {"train": train | {"epochs": 1}}))
    assert len(lengths) > 10
    assert max(lengths) <= 0.5 * 0.01 * (1 + 1e-9)
    assert max(lengths) > 0.5 * 0.0099


def test_nothing_to_clip_is_refused():
    run = {"algorithm": {"name": "prox_pda"}, "train": {"clip_norm": 1.0}, "topology": {"name": "cycle"}}
    with pytest.raises(ValidationError, match="prox_pda has no optimizer, so gradients cannot be clipped"):
        Experiment.model_validate(run)


COUNT = 13
MODEL = {"name": "simplecnn", "args": {"dropout": 0.0}}


def as_tensors(inputs, labels):
    return tuple(map(torch.from_numpy, inputs)), torch.from_numpy(labels)


def batch():
    draw = np.random.default_rng(0)
    images, labels = draw.normal(size=(COUNT, 2, 6, 6)), draw.integers(0, 3, COUNT)
    return Batch(0, (images,), labels, np.arange(COUNT), COUNT, COUNT)


def accumulated(parts, kind="float64"):
    torch.manual_seed(0)
    module = nn.Sequential(nn.Conv2d(2, 4, 3), nn.Tanh(), nn.Flatten(), nn.Linear(64, 3)).double()
    replica, comm = Replica(module), SimpleNamespace(advance_clock=lambda count: None, rank=0)
    problem = build_problem(Experiment().variants["allreduce"])
    gradients = LocalGradients(replica, problem, as_tensors, comm, Precision(kind, "cpu"), parts)
    return replica.grad, gradients(batch(), 0, "here", 0)()


@pytest.mark.parametrize("parts", [2, 3, 5, COUNT, COUNT + 4])
def test_parts_add_up_to_the_whole(parts):
    (ours, sums), (whole, reference) = accumulated(parts), accumulated(1)
    torch.testing.assert_close(ours, whole, rtol=0, atol=1e-12)
    torch.testing.assert_close(sums, reference, rtol=0, atol=1e-12)


def test_the_whole_is_torchs():
    torch.manual_seed(0)
    module = nn.Sequential(nn.Conv2d(2, 4, 3), nn.Tanh(), nn.Flatten(), nn.Linear(64, 3)).double()
    module = module.to(memory_format=torch.channels_last)
    (images,), labels = as_tensors(batch().inputs, batch().labels)
    wanted = torch.autograd.grad(
        nn.functional.cross_entropy(module(images), labels), list(module.parameters())
    )
    ours = torch.split(accumulated(4)[0], [each.numel() for each in wanted])
    for vector, reference in zip(ours, wanted, strict=True):
        in_memory = reference.permute(0, 2, 3, 1) if reference.dim() == 4 else reference
        torch.testing.assert_close(vector, in_memory.flatten(), rtol=0, atol=1e-12)


@pytest.mark.parametrize("compute", ["allreduce", "allreduce, buckets"])
def test_a_training_in_parts_is_one_in_the_whole(tmp_path, manifest, compute):
    """Accumulated training equals training on whole batches; no bucket is sent before the last part.

    The model has no dropout and no batch normalization, because their results depend on the parts.
    """
    bucket = {"name": "allreduce", "bucket_mb": 0.001} if "buckets" in compute else {"name": "allreduce"}
    results = []
    for parts in (1, 4):
        settings = {
            "algorithm": bucket,
            "train": {"accumulate": parts, "precision": "float64"},
            "model": MODEL,
        }
        job = simulate(task(tmp_path / f"{parts}", manifest, "allreduce", settings))
        results.append(measured(job)[0])
    for ours, reference in zip(*results, strict=True):
        assert ours.keys() == reference.keys()
        for name, value in reference.items():
            assert ours[name] == pytest.approx(value, rel=1e-12), name


def test_peak_memory_is_that_of_a_part():
    """The peak size of the tensors that autograd saves shrinks with the parts; hooks of autograd count it."""

    def kept(parts):
        sizes, live = [0], [0]

        def pack(tensor):
            live[0] += tensor.numel()
            sizes.append(live[0])
            return tensor

        def unpack(tensor):
            live[0] -= tensor.numel()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
            accumulated(parts)
        return max(sizes)

    assert kept(13) < kept(1) / 2


def test_more_parts_than_samples_are_refused():
    with pytest.raises(ValidationError, match="a batch of 4 samples cannot be divided into 5 parts"):
        Experiment.model_validate({"train": {"batch_size": 4, "accumulate": 5}})


def test_the_virtual_clock_counts_a_step_once():
    def program(comm):
        module = nn.Sequential(nn.Flatten(), nn.Linear(72, 3)).double()
        problem = build_problem(Experiment().variants["allreduce"])
        gradients = LocalGradients(Replica(module), problem, as_tensors, comm, Precision("float64", "cpu"), 4)
        gradients(batch(), 0, "here", 0)
        return comm.now()

    assert SimulatedWorld(1).run(program) == [pytest.approx(COUNT * 1e-4)]
