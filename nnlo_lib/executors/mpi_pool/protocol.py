"""Small messages between the ranks of MPI's world; neither the sender nor the receiver waits."""

import json
import time
from typing import Any

from mpi4py import MPI

ASSIGN_TAG, QUIT_TAG, STOP_TAG, REPORT_TAG, GROUP_LOST_TAG, TRAIN_TAG = range(6)
FAILURE_TAG_BASE = 100  # the tag of a training's failure message is this plus the number of the training


class Messenger:
    """Sends and receives messages, which may be any JSON values."""

    def __init__(self, comm: MPI.Comm) -> None:
        self._comm = comm
        self._pending_sends: list[MPI.Request] = []

    def send(self, item: Any, to: int, tag: int) -> None:
        """Start to send a message; do not wait for its arrival.

        Args:
            item: content of the message, any JSON value.
            to: receiving rank in MPI's world.
            tag: one of the tags of this module.
        """
        # A request keeps the buffer of its message alive, which MPI may read until the send has completed.
        self._pending_sends = [request for request in self._pending_sends if not request.Test()]
        self._pending_sends.append(self._comm.Isend([json.dumps(item).encode(), MPI.BYTE], to, tag))

    def linger(self, seconds: float) -> None:
        """Let MPI transfer the messages that were sent, before this process ends."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            # MPI transfers messages only inside its calls.
            self._comm.Iprobe(MPI.ANY_SOURCE, MPI.ANY_TAG)
            time.sleep(seconds / 100)

    def has_message(self, source: int, tag: int) -> bool:
        """Return True if a message can be received."""
        return self._comm.Iprobe(source, tag)

    def receive(self, source: int, tag: int) -> tuple[int, Any] | None:
        """Return the source and the content of a message, or None if no message has arrived."""
        status = MPI.Status()
        if not self._comm.Iprobe(source, tag, status):
            return None
        text = bytearray(status.Get_count(MPI.BYTE))
        # No other thread receives, so this is the message whose size was probed.
        self._comm.Recv([text, MPI.BYTE], status.Get_source(), tag)
        return status.Get_source(), json.loads(text)


NO_GROUP_STATUS = 3  # exit status of the coordinator if fold tasks but no rank groups are left
