"""Seconds of a rank by phase, from the start of its process to the publication of the results."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from nnlo_lib.comm.accounting import Traffic
from nnlo_lib.comm.communicator import Communicator
from nnlo_lib.state.chrome_trace import TraceWriter

T = TypeVar("T")
PHASES = ("startup", "compute", "communication", "wait", "data", "evaluate", "checkpoint")


class PhaseTimer:
    """Measures seconds by phase on the communicator's clock, across restarts; writes each span to `trace`.

    A second belongs to at most one phase. The total also includes the seconds outside of all phases.

    Attributes:
        trace: receives each span.
        training_seconds: seconds in training steps, which include communication, waiting and loading of batches;
            this is the training time of tables and charts.

    Args:
        comm: communicator of the rank.
        trace: trace file of the rank.
        started: start of the rank on the communicator's clock, in seconds.
    """

    def __init__(self, comm: Communicator, trace: TraceWriter, started: float) -> None:
        self._comm, self.trace, self._started = comm, trace, started
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._earlier, self._earlier_total = Traffic(), 0.0
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
        iterator = iter(batches)
        while True:
            started = self._comm.now()
            try:
                batch = next(iterator)
            except StopIteration:
                return
            now = self._comm.now()
            self._seconds["data"] += now - started
            self.trace.detail_span("data", "data", started, now)
            yield batch

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
