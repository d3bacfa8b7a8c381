"""Batch normalization over all ranks equals that in one process with all samples; a batch of one sample is refused.

test_bit_reproducibility.py has whole trainings on one and several ranks.
"""

import functools
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from helpers.algorithm_trainings import measured, rows, task
from helpers.run_on_ranks import on_ranks
from helpers.training_here import train_with_mpi
from pydantic import ValidationError
from torch import nn

from nnlo_lib.config import Experiment, Run
from nnlo_lib.core.errors import UserError
from nnlo_lib.problems.base import build_problem
from nnlo_lib.train.replica.gradients import check_batch_norm_batches
from nnlo_lib.train.replica.sync_batch_norm import (
    PassCollectives,
    SyncBatchNorm,
    convert_sync_batch_norm,
    global_statistics,
    local_sums,
)

STEPS, CLASSES = 3, 3
COUNTS = {1: (9,), 2: (5, 4), 4: (4, 0, 2, 3)}  # samples of each rank in a step, by number of ranks
ALONE = SimpleNamespace(weight=1.0, allreduce=lambda vector: None)  # collectives of a single rank


def network(kind):
    """Return a small network with two batch normalizations."""
    torch.manual_seed(1)
    if kind == "vectors":
        inner = [nn.BatchNorm1d(5), nn.Tanh(), nn.BatchNorm1d(5, affine=False, momentum=None)]
        return nn.Sequential(nn.Linear(6, 5), *inner, nn.Linear(5, CLASSES)).double()
    layers = (
        nn.Conv2d(2, 4, 3, padding=1),
        nn.BatchNorm2d(4),
        nn.Tanh(),
        nn.Conv2d(4, 3, 3, stride=2),
        nn.BatchNorm2d(3),
    )
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(3 * 4, CLASSES)).double()


def samples(kind, step):
    """Return the global batch of a step."""
    draw = torch.Generator().manual_seed(step)
    shape = (6,) if kind == "vectors" else (2, 5, 5)
    inputs = torch.randn(9, *shape, generator=draw, dtype=torch.float64) * 2 + 100
    return inputs, torch.randint(CLASSES, (9,), generator=draw)


def backward(module, inputs, labels):
    module.zero_grad()
    nn.functional.cross_entropy(module(inputs), labels).backward()


def on_all(comm, kind):
    """Train with the samples distributed over ranks; return weights and statistics after each step."""
    peers, counts = PassCollectives(comm), COUNTS[comm.size]
    start, mine = sum(counts[: comm.rank]), counts[comm.rank]
    module, path = convert_sync_batch_norm(network(kind), peers), []
    for step in range(STEPS):
        inputs, labels = (each[start : start + mine] for each in samples(kind, step))
        peers.weight = mine / 9
        backward(module, inputs, labels)
        for parameter in module.parameters():
            vector = torch.zeros_like(parameter.grad).copy_(parameter.grad).mul_(mine / 9).view(-1)
            comm.allreduce(vector)
            parameter.data.sub_(vector.view_as(parameter), alpha=0.1)
        path.append({name: tensor.tolist() for name, tensor in module.state_dict().items()})
    return path


@functools.cache
def alone(kind):
    """Return the state of torch's own layers after each step with the combined batch."""
    module, path = network(kind), []
    for step in range(STEPS):
        backward(module, *samples(kind, step))
        for parameter in module.parameters():
            parameter.data.sub_(parameter.grad, alpha=0.1)
        path.append({name: tensor.clone() for name, tensor in module.state_dict().items()})
    return path


@pytest.mark.parametrize("kind", ["vectors", "images"])
@pytest.mark.parametrize("size", COUNTS)
@pytest.mark.mpi
def test_it_is_one_process_with_all_samples(size, kind):
    first, *others = on_ranks(on_all, "mpi", size, kind)
    assert all(path == first for path in others), "each rank has the same bits"
    for ours, reference in zip(first, alone(kind), strict=True):
        assert ours.keys() == reference.keys()
        for name, tensor in reference.items():
            found = torch.tensor(ours[name], dtype=tensor.dtype)
            torch.testing.assert_close(found, tensor, rtol=1e-9, atol=1e-9, msg=name)


def test_gradients_are_those_of_finite_differences():
    layer = convert_sync_batch_norm(nn.BatchNorm1d(3).double(), ALONE)
    assert torch.autograd.gradcheck(layer, torch.randn(5, 3, dtype=torch.float64, requires_grad=True))


def test_variance_survives_a_large_mean_in_float32():
    values = torch.randn(64, 3, 8, 8) + 1e4
    _, _, found = global_statistics(local_sums(values))
    variance = values.double().transpose(0, 1).reshape(3, -1).var(1, correction=0)
    torch.testing.assert_close(found, variance, rtol=1e-6, atol=0)


def test_half_precision_is_normalized_in_single():
    values = torch.randn(100, 3, dtype=torch.bfloat16)
    found, wanted = SyncBatchNorm(nn.BatchNorm1d(3), ALONE)(values), nn.BatchNorm1d(3)(values.float())
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found.float(), wanted, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("count", [0, 1])
def test_statistics_of_hardly_any_samples_stay_numbers(count):
    layer = SyncBatchNorm(nn.BatchNorm1d(3), ALONE)
    layer(torch.randn(count, 3)).sum().backward()
    assert all(tensor.isfinite().all() for tensor in layer.state_dict().values())
    assert layer.weight.grad.isfinite().all()
    assert int(layer.num_batches_tracked) == count


SETTINGS = {
    "buckets, parts": {"algorithm": {"name": "allreduce", "bucket_mb": 0.001}, "train": {"accumulate": 3}},
    "fp16": {"train": {"precision": "fp16"}},
    "sign": {"compression": {"name": "sign"}},
}


@pytest.mark.mpi
@pytest.mark.parametrize("case", SETTINGS)
def test_a_training_resumes_to_the_same_bits(tmp_path, manifest, case):
    settings = SETTINGS[case] | {"parallel": {"ranks": 3, "transport": "mpi", "sync_batch_norm": True}}
    whole, parts = (task(tmp_path / name, manifest, "allreduce", settings) for name in ("whole", "parts"))
    assert train_with_mpi(whole)
    assert not train_with_mpi(parts, 3)
    assert train_with_mpi(parts)
    assert measured(parts) == measured(whole)
    assert [row["invariant"] for row in rows(whole)] == [0, 0]


REFUSED = {
    **{
        name: ("mpi", f"the ranks of {name} do not compute the gradient of a step together")
        for name in ("average", "downpour", "dsgd")
    },
    "allreduce": ("simulated", r"simulated ranks share one thread .* or `parallel\.transport: mpi`"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_only_processes_that_step_together_normalize_together(name):
    transport, reason = REFUSED[name]
    run = {"algorithm": {"name": name}, "parallel": {"sync_batch_norm": True, "transport": transport}}
    with pytest.raises(ValidationError, match=reason):
        Experiment.model_validate(run)


class Steps:
    """Loader whose steps have the given numbers of samples."""

    def __init__(self, *counts):
        self.counts, self.steps_per_epoch = counts, len(counts)

    def count(self, epoch, step):
        return self.counts[step]

    def batch(self, epoch, step):
        return self

    @property
    def inputs(self):
        return (np.ones((2, 3, 4), np.float32),)

    @property
    def labels(self):
        return np.zeros(2, np.int64)


def tensors(inputs, labels):
    return tuple(map(torch.from_numpy, inputs)), torch.from_numpy(labels)


def refuse(module, *counts, parts=1):
    check_batch_norm_batches(module, build_problem(Run(metrics=())), tensors, Steps(*counts), parts, 7)


def normalized():
    return nn.Sequential(nn.BatchNorm1d(3), nn.Flatten(), nn.Linear(12, 5), nn.BatchNorm1d(5))


@pytest.mark.parametrize(("counts", "parts", "step"), [((9, 9, 1), 1, 3), ((5, 9), 4, 1), ((1,), 1, 1), ((8, 3), 4, 2)])  # fmt: skip
def test_where_it_would_end(counts, parts, step):
    module = normalized()
    before = {name: each.clone() for name, each in module.state_dict().items()}
    with pytest.raises(UserError, match=f"in step {step} of each epoch, on rank 7: .* train.steps_per_epoch"):
        refuse(module, *counts, parts=parts)
    assert all(torch.equal(each, before[name]) for name, each in module.state_dict().items())


def test_what_can_be_normalized():
    refuse(normalized(), 9, 2)
    refuse(normalized(), 8, 0, parts=4)
    refuse(nn.Sequential(nn.BatchNorm1d(3), nn.Flatten()), 9, 1)  # one sample has four values per channel
    refuse(nn.Flatten(), 9, 1)
