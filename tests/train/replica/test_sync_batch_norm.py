"""Synchronized batch normalization over all ranks equals normalization in one process with all samples."""

import functools

import pytest
import torch
from helpers import sync_batch_norm_programs as programs
from helpers.run_on_ranks import IDS, TRANSPORTS, on_ranks
from torch import nn

from nnlo_lib.comm.midpass import PassCollectives
from nnlo_lib.comm.simulated.communicator import SimulatedWorld
from nnlo_lib.train.replica.sync_batch_norm import (
    SyncBatchNorm,
    convert_sync_batch_norm,
    global_statistics,
    local_sums,
)


@functools.cache
def outcome(transport, size, kind):
    return on_ranks(programs.on_all, transport, size, kind)


@functools.cache
def alone(kind):
    """Return the state of torch's own layers after each step with the combined batch."""
    module, path = programs.network(kind), []
    for step in range(programs.STEPS):
        programs.learn(module, *programs.samples(kind, step), lambda grad: None)
        path.append({name: tensor.clone() for name, tensor in module.state_dict().items()})
    return path


@pytest.mark.parametrize("kind", ["vectors", "images"])
@pytest.mark.parametrize(("transport", "size"), [*TRANSPORTS, ("simulated", 1)], ids=[*IDS, "alone"])
def test_it_is_one_process_with_all_samples(transport, size, kind):
    for path in outcome(transport, size, kind):
        for ours, reference in zip(path, alone(kind), strict=True):
            assert ours.keys() == reference.keys()
            for name, tensor in reference.items():
                found = torch.tensor(ours[name], dtype=tensor.dtype)
                torch.testing.assert_close(found, tensor, rtol=1e-9, atol=1e-9, msg=name)


@pytest.mark.mpi
@pytest.mark.parametrize("size", [2, 4])
def test_simulated_ranks_have_the_bits_of_real_ones(size):
    assert outcome("simulated", size, "images") == outcome("mpi", size, "images")


def test_each_rank_goes_on_in_its_own_random_stream():
    simulated = SimulatedWorld(3).run(programs.drawn)
    alone = [
        SimulatedWorld(1).run(lambda _, rank=rank: programs.drawn(_Ranked(rank)))[0] for rank in range(3)
    ]
    assert simulated == alone


class _Ranked:
    """World of one rank with a given rank number.

    Its statistics equal the global statistics, because the samples of all ranks are equal.
    """

    def __init__(self, rank):
        self.rank, self.size = rank, 1

    def allreduce(self, vector, purpose):
        pass

    def pass_collectives(self):
        return PassCollectives(self.allreduce)


def test_a_failure_comes_out_of_its_thread():
    assert SimulatedWorld(2).run(programs.fails) == ["no good", "no good"]


def test_gradients_are_those_of_finite_differences():
    def run(comm):
        peers = comm.pass_collectives()
        return peers.run(lambda: check_with(peers))

    def check_with(peers):
        layer = convert_sync_batch_norm(nn.BatchNorm1d(3).double(), peers)
        return torch.autograd.gradcheck(layer, torch.randn(5, 3, dtype=torch.float64, requires_grad=True))

    assert SimulatedWorld(1).run(run) == [True]


def test_variance_survives_a_large_mean_in_float32():
    values = torch.randn(64, 3, 8, 8) + 1e4
    statistics = global_statistics(local_sums(values))
    variance = values.double().transpose(0, 1).reshape(3, -1).var(1, correction=0)
    torch.testing.assert_close(statistics.variance, variance, rtol=1e-6, atol=0)


def test_half_precision_is_normalized_in_single():
    layer = SimulatedWorld(1).run(
        lambda comm: convert_sync_batch_norm(nn.BatchNorm1d(3), comm.pass_collectives())
    )[0]
    assert isinstance(layer, SyncBatchNorm)
    layer._together = _Alone()
    values = torch.randn(100, 3, dtype=torch.bfloat16)
    found, wanted = layer(values), nn.BatchNorm1d(3)(values.float())
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found.float(), wanted, rtol=1e-2, atol=1e-2)


class _Alone:
    weight = 1.0

    def allreduce(self, vector):
        pass


def test_names_parameters_and_evaluation_stay():
    plain = programs.network("images")
    names, parameters = list(plain.state_dict()), list(plain.parameters())
    inputs = programs.samples("images", 0)[0]
    wanted = plain.eval()(inputs)
    ours = convert_sync_batch_norm(plain, _Alone())
    assert list(ours.state_dict()) == names
    assert all(one is other for one, other in zip(ours.parameters(), parameters, strict=True))
    assert torch.equal(ours.eval()(inputs), wanted)


@pytest.mark.parametrize("count", [0, 1])
def test_statistics_of_hardly_any_samples_stay_numbers(count):
    layer = SyncBatchNorm(nn.BatchNorm1d(3), _Alone())
    layer(torch.randn(count, 3)).sum().backward()
    assert all(tensor.isfinite().all() for tensor in layer.state_dict().values())
    assert layer.weight.grad.isfinite().all()
    assert int(layer.num_batches_tracked) == count
