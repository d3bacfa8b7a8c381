"""Gradients: clipping of the vector that the optimizer applies, and accumulation over the parts of a batch."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from helpers.algorithm_trainings import SYNCHRONOUS, measured, task
from helpers.training_here import simulate
from pydantic import ValidationError
from torch import nn

from nnlo_lib.algorithms.allreduce import AllReduce
from nnlo_lib.algorithms.base import SampleShare
from nnlo_lib.algorithms.downpour import Downpour
from nnlo_lib.comm.simulated.communicator import SimulatedWorld
from nnlo_lib.config import Experiment
from nnlo_lib.config.optimizer import SGDConfig
from nnlo_lib.data.loading.loader import Batch
from nnlo_lib.problems.base import build_problem
from nnlo_lib.train.optimizers.factory import attach_optimizers
from nnlo_lib.train.replica.gradients import LocalGradients, micro_batch_slices
from nnlo_lib.train.replica.precision import Precision
from nnlo_lib.train.replica.replica import Replica

LR, SIZE = 0.1, 12


def replica(clip_norm):
    """Return a replica of two layers with SIZE parameters, all zero."""
    module = nn.Sequential(nn.Linear(3, 3), nn.Flatten()).double()
    for parameter in module.parameters():
        parameter.data.zero_()
    ours = Replica(module)
    attach_optimizers(ours, SGDConfig(lr=LR))
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


def test_slices_are_as_equal_as_can_be():
    assert [part.stop - part.start for part in micro_batch_slices(13, 4)] == [3, 3, 3, 4]
    assert [part.stop - part.start for part in micro_batch_slices(2, 3)] == [0, 1, 1]


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
