"""Callbacks: reactions to the parts of a rank's training as they begin and end, and to its events."""

from collections.abc import Callable
from contextlib import ExitStack
from typing import Literal

from nnlo_lib.algorithms.base import ReplicaView, SampleShare

Event = Literal["gradient", "rewound", "epoch recorded", "validation recorded", "epoch"]


class Callback:
    """Reacts to a rank's training; subclasses override what they need.

    No callback may change vectors, draw random numbers or call the communicator. Parts of a training begin and end, one in
    another: `run` (without an end after an error), `step` of a mini-batch until the next one is loaded, `backward` pass of a
    mini-batch or a part of one, `optimizer` (on a server, too), `serve` of a server until a pause, and the algorithm's hooks
    by their names.
    """

    def begin(self, part: str) -> None:
        """Act before a part."""

    def end(self, part: str) -> None:
        """Act after a part."""

    def on(self, event: Event) -> None:
        """Act on an event.

        `gradient`: the first forward pass of a gradient begins; `rewound`: the tables have the rows of the checkpoint from
        which the run resumes; `epoch recorded`, `validation recorded`: the history, or the validations within epochs, has
        a new row, on rank 0; `epoch`: an epoch is evaluated and recorded.
        """

    def close(self) -> None:
        """Write unsaved output; called after errors too."""


class Callbacks(list[Callback]):
    """The callbacks of a rank's training. Parts end in reverse order, so that their time spans nest."""

    def begin(self, part: str) -> None:
        """Tell all callbacks that a part begins."""
        for each in self:
            each.begin(part)

    def end(self, part: str) -> None:
        """Tell all callbacks that a part has ended."""
        for each in reversed(self):
            each.end(part)

    def on(self, event: Event) -> None:
        """Tell all callbacks of an event."""
        for each in self:
            each.on(event)

    def around(self, hook: Callable[..., None], replica: ReplicaView, *share: SampleShare) -> None:
        """Call a hook of an algorithm as a part; hooks that need the mini-batch's sample counts get them as `share`."""
        self.begin(hook.__name__)
        hook(replica, *share)
        self.end(hook.__name__)

    def close(self) -> None:
        """Close all callbacks in reverse order, even if one of them raises an error."""
        with ExitStack() as closing:
            for each in self:
                closing.callback(each.close)
