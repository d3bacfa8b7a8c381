"""The process of a rank, as the other ranks see it."""

import socket
from collections.abc import Sequence
from dataclasses import dataclass

from nnlo_lib.core.process_state import ProcessState

MAX_NAMED_RANKS = 8  # in a message


@dataclass(frozen=True)
class RankProcess:
    """The process of a rank.

    Attributes:
        rank: rank in the training, not in a part of its ranks.
        host: host name.
        pid: process id on the host.
    """

    rank: int
    host: str
    pid: int

    @property
    def is_local(self) -> bool:
        """Whether it runs on this host; the state of processes on other hosts is unknown."""
        return self.host == socket.gethostname()

    @property
    def is_dead(self) -> bool:
        """Whether it runs on this host and has ended."""
        return self.is_local and ProcessState.of(self.pid).has_ended

    @property
    def is_stopped(self) -> bool:
        """Whether it runs on this host and is stopped by a signal or a debugger."""
        return self.is_local and ProcessState.of(self.pid).is_stopped

    def __str__(self) -> str:
        state = str(ProcessState.of(self.pid)) if self.is_local else ""
        return f"rank {self.rank} (process {self.pid} on {self.host}{state and f', {state}'})"


def describe_ranks(ranks: Sequence[RankProcess]) -> str:
    """Return the ranks with process, host and state as text; at most MAX_NAMED_RANKS of them by name."""
    rest = len(ranks) - MAX_NAMED_RANKS
    return ", ".join(map(str, ranks[:MAX_NAMED_RANKS])) + (f" and {rest} more ranks" if rest > 0 else "")
