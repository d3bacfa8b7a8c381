"""Estimate of the clock offsets between ranks."""

from pathlib import Path
from statistics import median

from nnlo_lib.comm.communicator import Communicator

ROUNDS = 9
BOOT = Path("/proc/sys/kernel/random/boot_id")


def clock_offset_to_rank_0(comm: Communicator) -> float:
    """Return by how many seconds this rank's clock is ahead of rank 0's; all ranks call it.

    All ranks read their clocks when they leave a barrier, several times; the error of the median difference
    is about the duration of a barrier. Processes of one machine share a clock: the offset is 0 on the machine
    of rank 0.
    """
    left = []
    for _ in range(ROUNDS):
        comm.barrier()
        left.append(comm.now())
    (where, theirs), *_ = comm.gather([_machine(), left])
    # Measuring would only add the error of a barrier to the true offset, 0.
    if where and where == _machine():
        return 0.0
    apart = [mine - float(first) for mine, first in zip(left, theirs, strict=True)]
    # The median ignores barriers that the scheduler of the operating system has delayed.
    return median(apart)


def _machine() -> str:
    try:
        return BOOT.read_text().strip()
    except OSError:
        return ""
