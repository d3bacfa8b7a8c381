"""Calls of an algorithm's hooks, announced to the callbacks."""

from collections.abc import Callable

from nnlo_lib.algorithms.base import SampleShare
from nnlo_lib.train.callback import Callbacks
from nnlo_lib.train.replica.replica import Replica


class AlgorithmHooks:
    """Calls the hooks of an algorithm on a replica, between the events `on_hook_begin` and `on_hook_end`."""

    def __init__(self, replica: Replica, callbacks: Callbacks) -> None:
        self._replica, self._callbacks = replica, callbacks

    def __call__(self, hook: Callable[..., None], *share: SampleShare) -> None:
        """Call `hook`; hooks that need the mini-batch's sample counts get them as `share`."""
        for callback in self._callbacks:
            callback.on_hook_begin(hook.__name__)
        hook(self._replica, *share)
        for callback in reversed(self._callbacks):
            callback.on_hook_end(hook.__name__)
