"""Sums over GPUs through NCCL, by torch.distributed, without host memory."""

import socket
from collections.abc import Callable
from datetime import timedelta

import torch
from torch import Tensor, distributed
from torch._C._distributed_c10d import TCPStore, Work

from nnlo_lib.comm.communicator import Communicator

IsDone = Callable[[], bool]
WaitUntil = Callable[[IsDone], None]  # polls until true, or raises PeerLostError


class NcclAllreduce:
    """All-reduce in a process group of the ranks of `comm`; each rank must have its own GPU.

    Sums in rank order: reduce-scatter by all-to-all, local sum, all-gather. Bytes and bits are the same as in
    the sum through host memory: GPUs add float32 and float64 as CPUs do. Vectors are padded to equal chunks. For tests,
    the `backend` gloo runs the same calls on CPUs.
    """

    def __init__(
        self, comm: Communicator, timeout: float, fastest: bool = False, backend: str = "nccl"
    ) -> None:
        self._rank, self._size, self._fastest = comm.rank, comm.size, fastest
        # An earlier trial in this process may have left its process group.
        if distributed.is_initialized():
            distributed.destroy_process_group()
        limit = timedelta(seconds=timeout)
        # The ranks find each other through a store, which rank 0 opens. The system chooses a free port (0), which the gather
        # passes to the other ranks. They connect only then: a store that waited for them here would wait forever.
        host, port = socket.gethostname(), 0
        if comm.rank == 0:
            store = TCPStore(host, port, comm.size, is_master=True, timeout=limit, wait_for_workers=False)
            comm.gather([host, store.port])
        else:
            host, port = comm.gather(None)[0]
            store = TCPStore(host, port, comm.size, is_master=False, timeout=limit)
        distributed.init_process_group(
            backend, store=store, rank=comm.rank, world_size=comm.size, timeout=limit
        )

    def begin(
        self, vector: Tensor, part: int = 0, reduces: bool = True, gathers: bool = True
    ) -> Callable[[WaitUntil], None]:
        """Start the sum, or a half of it with parts of `part` values; return a function that waits and overwrites `vector` (P,)."""
        if self._fastest:
            is_done = _done(distributed.all_reduce(vector, async_op=True))
            return lambda wait: wait(is_done)
        size = self._size
        padded = vector.new_zeros(size * (part or -(-vector.numel() // size)))
        padded[: vector.numel()] = vector
        mine = padded.view(size, -1)[self._rank]
        parts = torch.empty_like(padded) if reduces else mine.clone()
        work = distributed.all_to_all_single(parts, padded, async_op=True) if reduces else None
        is_scattered = _done(work) if reduces else None

        def finish(wait: WaitUntil) -> None:
            if is_scattered is not None:
                wait(is_scattered)
            total, *others = parts.view(-1, mine.numel())
            for other in others:
                total.add_(other)
            # `padded` may be overwritten, because the all-to-all that read it is complete.
            if gathers:
                wait(_done(distributed.all_gather_into_tensor(padded, total, async_op=True)))
            else:
                mine.copy_(total)
            vector.copy_(padded[: vector.numel()])

        return finish


def _done(work: Work | None) -> IsDone:
    """Return a function that returns True once `work` is done; GPU work queued afterwards runs after it."""
    assert work is not None, "async_op=True returns a work handle"

    def done() -> bool:
        # With NCCL, only wait() makes the current CUDA stream wait for the result; here it returns at once.
        completed = work.is_completed()
        if completed:
            work.wait()
        return bool(completed)

    return done
