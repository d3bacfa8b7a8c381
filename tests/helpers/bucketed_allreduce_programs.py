"""Training by all-reduce in buckets, with ranks without samples and layers that a step does not use."""

import torch
from torch import Tensor, nn

from nnlo_lib.algorithms.base import SampleShare
from nnlo_lib.algorithms.collective.allreduce import AllReduce
from nnlo_lib.comm.communicator import Communicator
from nnlo_lib.train.replica.replica import Replica

WIDTH, BATCH, STEPS = 50, 4, 6
PARAMETERS = 4 * (WIDTH * WIDTH + WIDTH)


class Network(nn.Module):
    """Four linear layers; some steps skip the third layer and apply the second one twice."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def forward(self, inputs: Tensor, step: int, rank: int) -> Tensor:
        first, second, third, fourth = self.layers
        hidden = torch.tanh(second(torch.tanh(first(inputs))))
        if step % 3 == 1 or (step % 3 == 2 and rank == 0):
            hidden = torch.tanh(second(hidden))
        else:
            hidden = torch.tanh(third(hidden))
        return fourth(hidden)


def count(rank: int, step: int, ranks: int) -> int:
    """Return a rank's number of samples: 0 on the last rank in step 1, and on all ranks except 0 in the last step."""
    if step == STEPS - 1:
        return 1 if rank == 0 else 0
    return 0 if step == 1 and rank == ranks - 1 else BATCH + rank


def trained(comm: Communicator, sizes: list[int]) -> dict[str, dict[int, list[list[str]]]]:
    """Train in both precisions with each bucket size; return every 97th parameter after each step in hexadecimal."""
    return {
        dtype: {size: _train(comm, size, getattr(torch, dtype)) for size in sizes}
        for dtype in ("float32", "float64")
    }


def _train(comm: Communicator, size: int, dtype: torch.dtype) -> list[list[str]]:
    replica, algorithm = _replica(dtype), AllReduce(comm, size)
    algorithm.start(replica)
    path = []
    for step in range(STEPS):
        share = SampleShare(
            count(comm.rank, step, comm.size), sum(count(r, step, comm.size) for r in range(comm.size))
        )
        algorithm.on_batch(replica, share)
        _gradient(replica, share, step, comm.rank)
        algorithm.on_gradient(replica, share)
        replica.step()
        path.append([value.hex() for value in replica.theta[::97].tolist()])
    return path


def _replica(dtype: torch.dtype) -> Replica:
    torch.set_num_threads(1)  # the last bits of a matrix product depend on the number of threads
    torch.manual_seed(1)
    replica = Replica(Network().to(dtype))
    replica.set_optimizer(torch.optim.SGD, lr=0.5, momentum=0.9)
    return replica


def _gradient(replica: Replica, share: SampleShare, step: int, rank: int) -> None:
    if not share.count:
        replica.grad.zero_()
        return
    generator = torch.Generator().manual_seed(100 * step + rank)
    inputs = torch.randn(share.count, WIDTH, generator=generator, dtype=replica.theta.dtype)
    replica.backward(replica.forward(inputs, step, rank).square().mean())


def sent_early(comm: Communicator, size: int) -> list[list[int]]:
    """Return for each step: values sent before the backward pass ended, values sent in total, values per bucket."""
    replica, algorithm, sent = _replica(torch.float32), AllReduce(comm, size), []
    original = comm.iallreduce
    comm.iallreduce = lambda vector, purpose: (sent.append(vector.numel()), original(vector, purpose))[1]
    early = []
    for step in range(STEPS):
        sent.clear()
        share = SampleShare(
            count(comm.rank, step, comm.size), sum(count(r, step, comm.size) for r in range(comm.size))
        )
        algorithm.on_batch(replica, share)
        _gradient(replica, share, step, comm.rank)
        before = sum(sent)
        algorithm.on_gradient(replica, share)
        early.append([before, sum(sent), *sent])
    return early
