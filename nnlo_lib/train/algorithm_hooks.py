"""Calls of the algorithm's hooks, which callbacks may time."""

from collections.abc import Callable

from nnlo_lib.algorithms.base import SampleShare
from nnlo_lib.train.callback import Callbacks
from nnlo_lib.train.replica.replica import Replica


class AlgorithmHooks:
    """Calls hooks of an algorithm on a replica between the events `on_hook_begin` and `on_hook_end`."""

    def __init__(self, replica: Replica, callbacks: Callbacks) -> None:
        self._replica, self._callbacks = replica, callbacks

    def __call__(self, hook: Callable[..., None], *share: SampleShare) -> None:
        """Call a hook; share: of the mini-batch, for the hooks that take it."""
        for callback in self._callbacks:
            callback.on_hook_begin(hook.__name__)
        hook(self._replica, *share)
        for callback in reversed(self._callbacks):
            callback.on_hook_end(hook.__name__)
