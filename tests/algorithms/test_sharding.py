"""`algorithm.shard: optimizer`: each rank keeps the moments of its part; the parameters have the bits of whole moments."""

from zlib import crc32

import pytest
import torch
from helpers.run_on_ranks import on_ranks
from pydantic import TypeAdapter
from torch import nn

from nnlo_lib.algorithms.allreduce import AllReduce, ShardedAllReduce
from nnlo_lib.algorithms.base import SampleShare
from nnlo_lib.config.optimizer import OptimizerConfig
from nnlo_lib.train.optimizers.factory import attach_optimizers
from nnlo_lib.train.replica.replica import Replica

WIDTH, STEPS = 90, 50  # 16,471 parameters: ranks of one host exchange them through shared memory
GROUPS = [{"match": "0.*", "lr": 0.02}, {"match": "*bias", "weight_decay": 0.3}]
RULES = {
    "sgd, momentum": {"name": "sgd", "momentum": 0.9, "nesterov": True, "weight_decay": 0.1},
    "adam": {"name": "adam", "weight_decay": 0.1, "amsgrad": True},
    "adamw, groups": {"name": "adamw", "groups": GROUPS, "weight_decay_on": "matrices"},
    "adam, inside root": {"name": "adam", "epsilon_inside_root": True},
    "rmsprop": {"name": "rmsprop", "momentum": 0.9, "centered": True, "weight_decay": 0.1, "decoupled": True},
    **{name: {"name": name} for name in ("sgd", "lion", "nadam", "adamax", "adadelta", "adagrad")},
}


def trained(comm, is_sharded, names, clip=None):
    """Train by each rule; return checksum of all steps' parameters, number of moments, bytes, and the parameters' norm."""
    torch.set_num_threads(1)
    found = []
    for name in names:
        torch.manual_seed(1)
        layers = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 1)
        replica = Replica(nn.Sequential(*layers))
        values, algorithm = replica.theta.numel(), (ShardedAllReduce if is_sharded else AllReduce)(comm)
        if is_sharded:
            replica.keep_part(comm.part(values), comm.allreduce)
        attach_optimizers(replica, TypeAdapter(OptimizerConfig).validate_python(RULES[name]))
        replica.clip_norm, checksum = clip, 0
        algorithm.start(replica)
        comm.traffic.clear()
        for step in range(STEPS):
            noise = torch.randn(values, generator=torch.Generator().manual_seed(100 * step + comm.rank))
            torch.addcmul(noise, noise, replica.theta, out=replica.grad)
            share = SampleShare(comm.rank + 1, comm.size * (comm.size + 1) // 2)
            algorithm.on_batch(replica, share)
            algorithm.on_gradient(replica, share)
            replica.step()
            algorithm.on_parameters(replica)
            checksum = crc32(replica.theta.numpy().tobytes(), checksum)
        state = replica.state().items()
        moments = sum(value.numel() for key, value in state if "optimizer." in key and value.dim())
        found.append([checksum, moments, sum(comm.bytes_sent.values()), float(replica.theta.norm())])
    return found


@pytest.mark.parametrize(
    ("transport", "ranks"), [*[("simulated", ranks) for ranks in (1, 2, 3, 5)], ("mpi", 2), ("mpi", 3)]
)
def test_parts_have_the_bits_of_the_whole(transport, ranks):
    """Of n ranks, each has the n-th part of the moments; together, they send the bytes of a ring."""
    names = list(RULES)[: None if (transport, ranks) == ("simulated", 3) else 3]
    whole, *_ = on_ranks(trained, "simulated", ranks, False, names)
    parts = on_ranks(trained, transport, ranks, True, names)
    values = WIDTH * (WIDTH + 1) * 2 + WIDTH + 1
    for number, name in enumerate(names):
        checksums, moments, sent, _ = zip(*(rank[number] for rank in parts), strict=True)
        assert set(checksums) == {whole[number][0]}, name
        assert sum(moments) == whole[number][1]
        assert max(moments) <= (1 / ranks + 64 / values) * whole[number][1]
        assert sum(sent) == STEPS * 8 * values * (ranks - 1)
        assert max(sent) <= STEPS * 8 * (values + 64 * ranks) * (ranks - 1) / ranks


def test_the_norm_of_all_parts_is_clipped():
    (whole, *_), parts = (
        on_ranks(trained, "simulated", 3, kind, ["sgd, momentum"], 1.0) for kind in (False, True)
    )
    assert {rank[0][0] for rank in parts} == {parts[0][0][0]}
    assert parts[0][0][3] == pytest.approx(whole[0][3], rel=1e-6)
