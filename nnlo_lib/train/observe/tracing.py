"""Trace spans for the phases of each step, on the rank's own clock."""

from collections.abc import Callable

from nnlo_lib.state.chrome_trace import TraceWriter
from nnlo_lib.train.callback import Callback


class StepTracer(Callback):
    """Traces steps, forward and backward passes, the optimizer and the algorithm's hooks.

    `now` returns seconds on the rank's clock. Spans nest: the span that began last ends first. A forward pass
    lasts from the start of a gradient, or from the end of the previous backward pass, to the next backward
    pass.
    """

    def __init__(self, now: Callable[[], float], trace: TraceWriter) -> None:
        self._now, self._trace = now, trace
        self._begun: list[float] = []
        self._forward_begun = 0.0

    def on_step_begin(self) -> None:
        self._begin()

    def on_step_end(self) -> None:
        self._end("step")

    def on_hook_begin(self, name: str) -> None:
        self._begin()

    def on_hook_end(self, name: str) -> None:
        self._end(name)

    def on_optimizer_begin(self) -> None:
        self._begin()

    def on_optimizer_end(self) -> None:
        self._end("optimizer")

    def on_gradient_begin(self) -> None:
        self._forward_begun = self._now()

    def on_backward_begin(self) -> None:
        self._begun.append(self._write_since(self._forward_begun, "forward"))

    def on_backward_end(self) -> None:
        self._forward_begun = self._end("backward")

    def _begin(self) -> None:
        self._begun.append(self._now())

    def _end(self, name: str) -> float:
        return self._write_since(self._begun.pop(), name)

    def _write_since(self, begun: float, name: str) -> float:
        """Write a span that ends now; return the current time."""
        now = self._now()
        self._trace.detail_span(name, "compute", begun, now)
        return now
