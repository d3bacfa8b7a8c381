"""Seconds of a rank by phase, from the start of its process to the publication; the trace file of their spans."""

import socket
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

from nnlo_lib.comm.accounting import Traffic
from nnlo_lib.comm.communicator import Communicator
from nnlo_lib.state import attempts
from nnlo_lib.state.chrome_trace import TraceHeader, TraceWriter
from nnlo_lib.train.task import Task

T = TypeVar("T")
PHASES = ("startup", "compute", "communication", "wait", "data", "evaluate", "checkpoint")
CLOCK_READINGS = 9  # of each rank's clock; their median ignores delays by the operating system
BOOT = Path("/proc/sys/kernel/random/boot_id")


class PhaseTimer:
    """Measures seconds by phase on the communicator's clock, across restarts; writes each span to `trace`.

    A second belongs to at most one phase. The total also includes the seconds outside of all phases.
    """

    def __init__(self, comm: Communicator, trace: TraceWriter, started: float) -> None:
        self._comm, self.trace, self._started = comm, trace, started
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._earlier, self._earlier_total = Traffic(), 0.0
        # In training steps, with communication, waiting and loading of batches: the time of tables and charts.
        self.training_seconds = 0.0

    def end_startup(self) -> None:
        """Count all time since the start of the rank, including communication and waiting, as phase `startup`."""
        self._comm.seconds.clear()
        self._seconds["startup"] += self._span("startup", "startup", self._started)

    def discard_start(self) -> None:
        """Discard the seconds and the traffic of this start, which finds nothing left to train."""
        self._comm.seconds.clear()
        self._comm.traffic.clear()
        self._started = self._comm.now()

    def skip(self, seconds: float) -> None:
        """Leave out a step of a virtual clock."""
        self._started += seconds

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Count all time inside the context, including communication, as phase `name`."""
        started, outside = self._comm.now(), dict(self._comm.seconds)
        yield
        # Communication inside the phase belongs to the phase, so that no second counts twice.
        self._comm.seconds.clear()
        self._comm.seconds.update(outside)
        self._seconds[name] += self._span(name, name, started)

    @contextmanager
    def training(self) -> Iterator[None]:
        """Count all time inside the context as training time."""
        started, elsewhere = self._comm.now(), self._non_compute_seconds()
        yield
        seconds = self._span("train", "compute", started)
        self.training_seconds += seconds
        # Communication, wait and data are measured while the span runs; computing is the rest.
        self._seconds["compute"] += seconds - (self._non_compute_seconds() - elsewhere)

    def timed_batches(self, batches: Iterable[T]) -> Iterator[T]:
        """Yield `batches`; count the time to load them as phase `data`."""
        started = self._comm.now()
        for batch in batches:
            now = self._comm.now()
            self._seconds["data"] += now - started
            self.trace.detail_span("data", "data", started, now)
            yield batch
            started = self._comm.now()

    def _non_compute_seconds(self) -> float:
        return sum(self._comm.seconds.values()) + self._seconds["data"]

    def _span(self, name: str, phase: str, started: float) -> float:
        now = self._comm.now()
        self.trace.span(name, phase, started, now)
        return now - started

    def seconds(self) -> dict[str, float]:
        """Return the seconds since the start of the rank, over all starts, as `total`, and the seconds of each phase."""
        split = {phase: self._seconds[phase] + self._comm.seconds[phase] for phase in PHASES}
        return {"total": self._earlier_total + self._comm.now() - self._started, **split}

    def traffic(self) -> dict[str, Any]:
        """Return this rank's sent `bytes` and `messages` by purpose, `edges` as [peer, messages, bytes]."""
        return (self._earlier + self._comm.traffic).state()

    def state(self) -> dict[str, Any]:
        """Return the counts from which a resumed run continues."""
        return {"seconds": self.seconds(), "traffic": self.traffic(), "trained": self.training_seconds}

    def load_state(self, state: dict[str, Any]) -> None:
        """Continue counting from `state`.

        After a change of the number of ranks, the states of several old ranks may be loaded: seconds by phase
        and traffic are summed, and training seconds are the maximum.
        """
        for phase in PHASES:
            self._seconds[phase] += state["seconds"][phase]
        self._earlier_total += state["seconds"]["total"]
        self._earlier = self._earlier + Traffic.load(state["traffic"])
        self.training_seconds = max(self.training_seconds, state["trained"])


def open_trace(task: Task, comm: Communicator, role: str, started: float) -> TraceWriter:
    """Start the trace file of this rank for this attempt; all ranks call it."""
    fine, virtual = task.run.observe.trace, comm.is_virtual
    # Trace files count, too: without a launcher no attempts are recorded, and the files of earlier attempts are kept.
    files = task.observe_folder.glob(f"trace-{comm.rank:05d}-*.jsonl")
    earlier = [int(path.stem.rpartition("-")[2]) for path in files]
    number = max(len(attempts.read_attempts(task.state)), *earlier, 0) + 1
    # Offset from this rank's clock to Unix time; a fine trace has that of rank 0 on all ranks.
    shift = 0.0 if virtual else time.time() - comm.now()
    if fine and not virtual:
        ahead = clock_offset_to_rank_0(comm)
        shift = float(comm.gather(shift)[0]) - ahead
    part = TraceHeader(comm.rank, number, role, socket.gethostname(), started, shift, virtual)
    trace = TraceWriter(task.observe_folder, part, fine)
    comm.seconds.listener = trace.detail_span if fine else None
    return trace


def clock_offset_to_rank_0(comm: Communicator) -> float:
    """Return by how many seconds this rank's clock is ahead of rank 0's; all ranks call it.

    All ranks read their clocks when they leave a barrier; the error of the median difference is about the
    duration of a barrier. Processes of one machine share a clock: the offset is 0 on the machine of rank 0.
    """
    left = []
    for _ in range(CLOCK_READINGS):
        comm.barrier()
        left.append(comm.now())
    machine = ""
    with suppress(OSError):
        machine = BOOT.read_text().strip()
    (where, theirs), *_ = comm.gather([machine, left])
    # Measuring would only add the error of a barrier to the true offset, 0.
    if where and where == machine:
        return 0.0
    return median(mine - float(first) for mine, first in zip(left, theirs, strict=True))
