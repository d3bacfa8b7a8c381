"""Callbacks: events of a rank's training, and the calls of an algorithm's hooks between their events."""

from collections.abc import Callable
from contextlib import ExitStack

from nnlo_lib.algorithms.base import SampleShare
from nnlo_lib.train.replica.replica import Replica


class Callback:
    """Reacts to events of a rank's training: subclasses override the events that they need.

    By default, events do nothing. No event handler may change vectors, draw random numbers or call the
    communicator.
    """

    def on_run_begin(self) -> None:
        """Act before the run starts or resumes."""

    def on_run_end(self) -> None:
        """Act when the run is done, or has stopped and saved; not called after an error."""

    def on_step_begin(self) -> None:
        """Act before a mini-batch."""

    def on_step_end(self) -> None:
        """Act after the step of a mini-batch, when the next mini-batch is loaded."""

    def on_gradient_begin(self) -> None:
        """Act before a gradient is computed: the first forward pass begins."""

    def on_backward_begin(self) -> None:
        """Act after the forward pass of a mini-batch or a part of one."""

    def on_backward_end(self) -> None:
        """Act after the backward pass; the forward pass of the next part begins."""

    def on_optimizer_begin(self) -> None:
        """Act before the optimizer updates the parameters; on a server too."""

    def on_optimizer_end(self) -> None:
        """Act after the optimizer has updated the parameters."""

    def on_hook_begin(self, name: str) -> None:
        """Act before the algorithm's hook `name`."""

    def on_hook_end(self, name: str) -> None:
        """Act after the algorithm's hook `name`."""

    def on_serve_begin(self) -> None:
        """Act before a server serves until the next pause."""

    def on_serve_end(self) -> None:
        """Act when a server pauses."""

    def on_rows_rewound(self) -> None:
        """Act when the tables are truncated to the rows of the checkpoint from which the run resumes."""

    def on_epoch_recorded(self) -> None:
        """Act on a new row of the history, on rank 0."""

    def on_validation_recorded(self) -> None:
        """Act on a new row of the validations within epochs, on rank 0."""

    def on_epoch_end(self) -> None:
        """Act when an epoch is evaluated and recorded."""

    def close(self) -> None:
        """Write unsaved output; called after errors too."""


class Callbacks(list[Callback]):
    """The callbacks of a rank's training. End events run in reverse order, so that their time spans nest."""

    def close(self) -> None:
        """Close all callbacks in reverse order, even if one of them raises an error."""
        with ExitStack() as closing:
            for each in self:
                closing.callback(each.close)


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
