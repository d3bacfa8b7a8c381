"""All-reduce in buckets during the backward pass is bit-identical to a single message after the backward pass.

Some ranks have no samples in a step, and some steps skip a layer or apply one twice.
"""

import pytest
import torch
from helpers.run_on_ranks import on_ranks
from torch import nn

from nnlo_lib.algorithms.allreduce import AllReduce
from nnlo_lib.algorithms.base import SampleShare
from nnlo_lib.train.replica.replica import Replica

WIDTH, BATCH, STEPS = 50, 4, 6
LAYER = WIDTH * WIDTH + WIDTH
SIZES = [0, 1000, 4 * LAYER, 4 * LAYER + 4, 100_000, 10**9]  # bucket sizes in bytes


class Network(nn.Module):
    """Four linear layers; some steps skip the third layer and apply the second one twice."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def forward(self, inputs, step, rank):
        first, second, third, fourth = self.layers
        hidden = torch.tanh(second(torch.tanh(first(inputs))))
        skips = step % 3 == 1 or (step % 3 == 2 and rank == 0)
        return fourth(torch.tanh((second if skips else third)(hidden)))


def count(rank, step, ranks):
    """Return a rank's number of samples: 0 on the last rank in step 1, and on all ranks except 0 in the last step."""
    if step == STEPS - 1:
        return int(rank == 0)
    return 0 if step == 1 and rank == ranks - 1 else BATCH + rank


def trained(comm, size, dtype):
    """Return, for each step, every 97th parameter in hexadecimal, and the lengths of the messages sent early and late."""
    torch.set_num_threads(1)  # the last bits of a matrix product depend on the number of threads
    torch.manual_seed(1)
    replica = Replica(Network().to(getattr(torch, dtype)))
    replica.set_optimizer(torch.optim.SGD, lr=0.5, momentum=0.9)
    algorithm, sent, path, messages = AllReduce(comm, size), [], [], []
    original = comm.iallreduce
    comm.iallreduce = lambda vector, purpose: (sent.append(vector.numel()), original(vector, purpose))[1]
    algorithm.start(replica)
    for step in range(STEPS):
        sent.clear()
        mine = count(comm.rank, step, comm.size)
        share = SampleShare(mine, sum(count(rank, step, comm.size) for rank in range(comm.size)))
        algorithm.on_batch(replica, share)
        replica.grad.zero_()
        if mine:
            generator = torch.Generator().manual_seed(100 * step + comm.rank)
            inputs = torch.randn(mine, WIDTH, generator=generator, dtype=replica.theta.dtype)
            replica.backward(replica.module(inputs, step, comm.rank).square().mean())
        early = list(sent)
        algorithm.on_gradient(replica, share)
        replica.step()
        path.append([value.hex() for value in replica.theta[::97].tolist()])
        messages.append([early, sent[len(early) :]])
    return [path, messages]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_every_bucket_size_gives_the_same_bits(dtype):
    whole = on_ranks(trained, "simulated", 4, 0, dtype)[0][0]
    for size in SIZES:
        assert all(path == whole for path, _ in on_ranks(trained, "simulated", 4, size, dtype))


def test_final_gradients_are_sent_during_the_backward_pass():
    """A rank sends the bucket of the last layer and those below it, up to an unused one; without samples, none."""
    results = on_ranks(trained, "simulated", 2, 4 * LAYER, "float32")
    early = [[sum(early) for early, _ in messages] for _, messages in results]
    assert early[0] == [3 * LAYER, LAYER, LAYER, 3 * LAYER, LAYER, LAYER]
    assert early[1] == [3 * LAYER, 0, 3 * LAYER, 3 * LAYER, LAYER, 0]
    assert all([*early, *late] == [LAYER] * 4 for _, messages in results for early, late in messages)
