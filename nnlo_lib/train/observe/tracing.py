"""Tell every phase of every step to the trace: what a rank's objects do is timed from outside, on its own clock."""

from collections.abc import Callable
from functools import wraps
from typing import Any

from nnlo_lib.comm.communicator import Communicator
from nnlo_lib.state.trace import Trace
from nnlo_lib.train.replica.gradients import Gradients, Measured
from nnlo_lib.train.training import Training

CALLS = ("on_batch", "on_gradient", "on_parameters", "on_pause", "on_epoch", "after_epoch", "update")


def trace_steps(training: Training) -> None:
    """Tell of each step, what it is made of, and what the algorithm does in between."""
    told = Told(training.comm, training.stopwatch.trace)
    gradient = Gradient(told)
    training.gradients = gradient.of(training.gradients)
    training.replica.backward = gradient.backward(training.replica.backward)  # type: ignore[method-assign]
    told.replace(training, "_step", "step")
    told.replace(training.replica, "step", "optimizer")
    for name in CALLS:
        if hasattr(training.algorithm, name):
            told.replace(training.algorithm, name, name)


class Told:
    """Makes calls tell when they began and ended."""

    def __init__(self, comm: Communicator, trace: Trace) -> None:
        self.now, self._trace = comm.now, trace

    def replace(self, owner: object, name: str, label: str) -> None:
        """Let a method of one object tell of itself as `label`."""
        setattr(owner, name, self.call(getattr(owner, name), label))

    def call(self, call: Callable[..., Any], label: str) -> Callable[..., Any]:
        """Return `call`, telling of itself as `label`."""

        @wraps(call)
        def timed(*given: Any, **named: Any) -> Any:
            started = self.now()
            result = call(*given, **named)
            self.since(started, label)
            return result

        return timed

    def since(self, started: float, label: str) -> float:
        """Tell of what began at `started` and ends now; return the time."""
        now = self.now()
        self._trace.detail(label, "compute", started, now)
        return now


class Gradient:
    """Tells the forward from the backward passes of a gradient: forward is what comes before each backward."""

    def __init__(self, told: Told) -> None:
        self._told, self._mark = told, 0.0

    def of(self, gradients: Gradients) -> Gradients:
        """Return `gradients`, noting when each begins."""

        def noted(*given: Any, **named: Any) -> Measured | None:
            self._mark = self._told.now()
            return gradients(*given, **named)

        return noted

    def backward(self, backward: Callable[..., None]) -> Callable[..., None]:
        """Return `backward`, telling of itself and of the forward pass before it."""

        def told(*given: Any, **named: Any) -> None:
            started = self._told.since(self._mark, "forward")
            backward(*given, **named)
            self._mark = self._told.since(started, "backward")

        return told
