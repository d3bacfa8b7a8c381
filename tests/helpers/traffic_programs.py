"""Programs that each rank runs in the tests of traffic accounting."""

import torch

from nnlo_lib.comm.communicator import Communicator

SMALL, LARGE = 10, 100_003  # values


def everything(comm: Communicator) -> dict:
    """Make every communication call once; return the state of this rank's ledger."""
    rank, size = comm.rank, comm.size
    comm.allreduce(torch.zeros(SMALL), "small sum")
    comm.allreduce(torch.zeros(LARGE), "large sum")
    comm.broadcast(torch.zeros(SMALL), 1, "word")
    right, left = (rank + 1) % size, (rank - 1) % size
    comm.exchange({right: torch.zeros(LARGE)}, {left: torch.zeros(LARGE)}, "ring")
    if rank == 0:
        comm.send(torch.zeros(SMALL), 1, purpose="letter")
        comm.send(torch.zeros(LARGE), 1, purpose="letter")
    if rank == 1:
        comm.receive(torch.zeros(SMALL), 0)
        comm.receive(torch.zeros(LARGE), 0)
    return comm.traffic.state()


def in_halves(comm: Communicator) -> list:
    """Split into odd and even ranks; in each half rank 0 sends to rank 1, then all ranks of the half all-reduce."""
    half = comm.split(comm.rank % 2)
    quarter = half.split(0)
    if half.rank == 0:
        quarter.send(torch.zeros(SMALL), 1)
    if half.rank == 1:
        quarter.receive(torch.zeros(SMALL), 0)
    half.allreduce(torch.zeros(SMALL), "half")
    return [comm.traffic.state(), half.traffic is comm.traffic]
