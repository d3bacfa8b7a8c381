"""Numbers of messages and collective calls so far, by which losses of messages are drawn."""

from collections import Counter
from typing import Any


class DrawCounts:
    """Counts the messages on each edge and the collective calls of each group of the simulated world."""

    def __init__(self) -> None:
        self._messages: dict[int, Counter[int]] = {}
        self._collectives: Counter[int] = Counter()

    def count_message(self, source: int, to: int) -> int:
        """Count a message; return the number of messages from `source` to `to` so far."""
        sent = self._messages.setdefault(source, Counter())
        sent[to] += 1
        return sent[to]

    def count_collective(self, group: int) -> int:
        """Count a collective call; return the number of earlier calls of the group."""
        self._collectives[group] += 1
        return self._collectives[group] - 1

    def state(self, rank: int) -> dict[str, Any]:
        """Return the counts that a rank saves: its messages, and the calls of all groups."""
        sent = self._messages.get(rank, Counter())
        return {"messages": [*sent.items()], "collectives": [*self._collectives.items()]}

    def load_state(self, rank: int, state: dict[str, Any]) -> None:
        """Restore the counts that `state` returned for the rank."""
        self._messages[rank] = Counter(dict(state["messages"]))
        self._collectives = Counter(dict(state["collectives"]))
