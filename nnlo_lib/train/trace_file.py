"""Trace file of a rank, with its clock's offset to rank 0.

Estimate of the clock offsets between ranks.

Open the trace file of a rank; its header relates the rank's clock to Unix time.
"""

import socket
import time
from pathlib import Path
from statistics import median

from nnlo_lib.comm.communicator import Communicator
from nnlo_lib.state import attempts
from nnlo_lib.state.chrome_trace import TraceHeader, TraceWriter
from nnlo_lib.train.task import Task

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


def open_trace(task: Task, comm: Communicator, role: str, started: float) -> TraceWriter:
    """Start the trace file of this rank for this attempt; all ranks call it.

    Args:
        task: task to train.
        comm: communicator of the ranks; its clock times the spans.
        role: role of this rank, `worker` or `server`.
        started: start of this rank on the communicator's clock, in seconds.
    """
    fine, virtual = task.run.observe.trace, comm.is_virtual
    # Trace files count, too: without a launcher no attempts are recorded, and the files of earlier attempts
    # are kept.
    number = max(len(attempts.read_attempts(task.state)), *_numbers(task, comm.rank), 0) + 1
    shift = 0.0 if virtual else _wall_clock(comm, aligned=fine)
    part = TraceHeader(comm.rank, number, role, socket.gethostname(), started, shift, virtual)
    trace = TraceWriter(task.observe_folder, part, fine)
    comm.seconds.listener = trace.detail_span if fine else None
    return trace


def _numbers(task: Task, rank: int) -> list[int]:
    """Return 0 and the attempt numbers of this rank's existing trace files."""
    found = task.observe_folder.glob(f"trace-{rank:05d}-*.jsonl")
    return [0, *(int(path.stem.rpartition("-")[2]) for path in found)]


def _wall_clock(comm: Communicator, aligned: bool) -> float:
    """Return the offset from this rank's clock to Unix time in seconds, by rank 0's clock if `aligned`."""
    own = time.time() - comm.now()
    if not aligned:
        return own
    ahead = clock_offset_to_rank_0(comm)
    first: float = comm.gather(own)[0]
    return first - ahead
