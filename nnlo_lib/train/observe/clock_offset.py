"""How far the clocks of ranks are apart."""

from pathlib import Path
from statistics import median

from nnlo_lib.comm.communicator import Communicator

ROUNDS = 9
BOOT = Path("/proc/sys/kernel/random/boot_id")


def clock_offset_to_rank_0(comm: Communicator) -> float:
    """Return the seconds that this rank's clock is ahead of rank 0's; all ranks call it.

    All read their clocks as they leave a barrier, several times; the median difference is as good as barriers are
    quick. Processes of one machine share a clock: nothing is estimated there.
    """
    left = []
    for _ in range(ROUNDS):
        comm.barrier()
        left.append(comm.now())
    (where, theirs), *_ = comm.gather([_machine(), left])
    if where and where == _machine():
        return 0.0
    apart = [mine - float(first) for mine, first in zip(left, theirs, strict=True)]
    return median(apart)


def _machine() -> str:
    try:
        return BOOT.read_text().strip()
    except OSError:
        return ""
