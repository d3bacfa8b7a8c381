"""What follows a training while it goes on: observers, and callbacks of a user."""

from contextlib import ExitStack


class Callback:
    """Follows a rank's training: a subclass overrides the events that it needs; the others do nothing.

    No event may change vectors, draw random numbers or call the communicator.
    """

    def on_run_begin(self) -> None:
        """Act before the run resumes or begins."""

    def on_run_end(self) -> None:
        """Act when the run is done, or has stopped and saved; not after an error."""

    def on_step_begin(self) -> None:
        """Act before a mini-batch."""

    def on_step_end(self) -> None:
        """Act when a mini-batch is learned and the next one is ready."""

    def on_gradient_begin(self) -> None:
        """Act before a gradient is computed: the first forward pass begins."""

    def on_backward_begin(self) -> None:
        """Act after the forward pass of a mini-batch or a part of one."""

    def on_backward_end(self) -> None:
        """Act after the backward pass; the forward pass of the next part begins."""

    def on_optimizer_begin(self) -> None:
        """Act before the optimizer moves the parameters; on a server too."""

    def on_optimizer_end(self) -> None:
        """Act after the optimizer has moved the parameters."""

    def on_hook_begin(self, name: str) -> None:
        """Act before the algorithm's hook `name`."""

    def on_hook_end(self, name: str) -> None:
        """Act after the algorithm's hook `name`."""

    def on_serve_begin(self) -> None:
        """Act before a server serves until the next pause."""

    def on_serve_end(self) -> None:
        """Act when a server pauses."""

    def on_rows_rewound(self) -> None:
        """Act when the tables are cut to what the run goes on from."""

    def on_epoch_recorded(self) -> None:
        """Act on a new row of the history, on rank 0."""

    def on_validation_recorded(self) -> None:
        """Act on a new row of the validations within epochs, on rank 0."""

    def on_epoch_end(self) -> None:
        """Act when an epoch is measured and recorded."""

    def close(self) -> None:
        """Write what is left; called after errors too."""


class Callbacks(list[Callback]):
    """The callbacks of a rank's training, in order; an end is announced in reverse, so that what they time nests."""

    def close(self) -> None:
        """Close all, the last one first, whatever one of them raises."""
        with ExitStack() as closing:
            for each in self:
                closing.callback(each.close)
