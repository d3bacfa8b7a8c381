"""Tracking of the part of a flat gradient that is final during a backward pass."""

from collections.abc import Callable, Sequence
from itertools import accumulate

from torch import Tensor, nn


class GradientReadyTracker:
    """Calls `ready(start)` during backward passes when more of a flat gradient, grad[start:], is final.

    Backward passes finish parameters roughly in reverse order of their registration. If a parameter gets no
    gradient, `start` stays above it.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], ready: Callable[[int], None]) -> None:
        self._starts = list(accumulate((parameter.numel() for parameter in parameters), initial=0))
        self._ready = ready
        self.reset()
        for number, parameter in enumerate(parameters):
            parameter.register_post_accumulate_grad_hook(self._hook(number))  # type: ignore[no-untyped-call]

    def reset(self, last: bool = True) -> None:
        """Prepare for a new backward pass; its gradients are final only if it is the `last` one of a step."""
        self._last = last
        self._final: set[int] = set()
        self._mark = len(self._starts) - 1  # the gradients of parameters[mark:] are final

    def _hook(self, number: int) -> Callable[[Tensor], None]:
        return lambda _: self._finished(number)

    def _finished(self, number: int) -> None:
        if not self._last:
            return
        self._final.add(number)
        before = self._mark
        # Parameters may finish in any order, but only a contiguous end of the vector is final.
        while self._mark - 1 in self._final:
            self._mark -= 1
        if self._mark < before:
            self._ready(self._starts[self._mark])
