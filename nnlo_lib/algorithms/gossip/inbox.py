"""Messages between ranks that are at different steps."""

from collections.abc import Callable

import torch

from nnlo_lib.algorithms.base import ReplicaView
from nnlo_lib.comm.communicator import Communicator, Message

TAG_STOP, TAG_QUIESCENT = 1, 2  # message tags; the tags of algorithms start at 3


class Inbox:
    """Passes messages on arrival to `take`, which receives them; only `quiesce` blocks."""

    def __init__(self, comm: Communicator, take: Callable[[ReplicaView, Message], None]) -> None:
        self.comm, self._take = comm, take
        self._stop = False
        self._done: set[int] = set()

    def drain(self, replica: ReplicaView) -> None:
        """Process all messages that have arrived."""
        while (message := self.comm.iprobe()) is not None:
            self._handle(replica, message)

    def should_stop(self, requested: bool) -> bool:
        """Return True if this rank requests a stop (`requested`) or has received a request of another rank.

        The request is sent to all ranks, unless this rank already knows of one.
        """
        if requested and not self._stop:
            self._send_control_to_all(TAG_STOP)
            self._stop = True
        return self._stop

    def quiesce(self, replica: ReplicaView, awaits: Callable[[], bool] = lambda: False) -> None:
        """Process messages until all ranks have called this and this rank `awaits` no more replies.

        Afterwards no message is in flight.
        """
        # Messages of a rank arrive in order: only replies follow its TAG_QUIESCENT, and `awaits` covers them.
        self._send_control_to_all(TAG_QUIESCENT)
        while len(self._done) < self.comm.size - 1 or awaits():
            self._handle(replica, self.comm.probe())
        self._done.clear()
        self._stop = False
        # No rank may send messages of the next phase while another rank still collects TAG_QUIESCENT.
        self.comm.barrier()

    def _handle(self, replica: ReplicaView, message: Message) -> None:
        if message.tag not in (TAG_STOP, TAG_QUIESCENT):
            self._take(replica, message)
            return
        self.comm.receive(torch.empty(0), message.source, message.tag)
        if message.tag == TAG_STOP:
            self._stop = True
        else:
            self._done.add(message.source)

    def _send_control_to_all(self, tag: int) -> None:
        for rank in range(self.comm.size):
            if rank != self.comm.rank:
                self.comm.send(torch.empty(0), rank, tag, "control")
