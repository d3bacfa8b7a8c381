"""The gradient's sum over ranks, started while the backward pass still computes."""

from nnlo_lib.algorithms.base import ReplicaView
from nnlo_lib.comm.communicator import Communicator, Request


class GradientBuckets:
    """Sums a replica's gradient over ranks in buckets, each sent once the backward pass has computed it.

    Li et al., PyTorch Distributed, VLDB 2020, section 3.2.3. Buckets of `size` bytes are cut from the end of
    the flat gradient, where backward passes begin, regardless of layers; the last bucket is up to twice as
    large. All ranks send the same buckets in the same order, even if a rank has no samples or does not use a
    parameter. With size 0, one message is sent after the backward pass. Sums in rank order do not depend on
    the bucket size.
    """

    def __init__(self, comm: Communicator, size: int = 0) -> None:
        self._comm, self._size = comm, size
        self._watched: ReplicaView | None = None
        self._end = 0  # grad[:_end] is not sent yet; 0 between steps
        self._requests: list[Request] = []

    def begin(self, replica: ReplicaView, weight: float) -> None:
        """Prepare for a backward pass; its gradient will be multiplied by `weight`."""
        self._grad, self._weight, self._end = replica.grad, weight, replica.grad.numel()
        # Hooks stay on the replica and are registered only once.
        if self._size and self._watched is not replica:
            self._watched = replica
            replica.on_gradient_ready(self._ready)

    def finish(self, replica: ReplicaView, weight: float) -> None:
        """Overwrite grad by the sum of weight * grad over ranks."""
        if not self._end:
            self.begin(replica, weight)
        # Ranks whose backward pass did not report all parts send the same buckets here, in the same order.
        self._ready(0)
        self._send(0)
        for request in self._requests:
            request.wait()
        self._requests.clear()

    def _ready(self, start: int) -> None:
        """Send the full buckets of grad[start:], but keep at least the values of one bucket for `finish`."""
        values = self._size // self._grad.element_size() or self._grad.numel()
        while self._end - values >= max(start, values):
            self._send(self._end - values)

    def _send(self, start: int) -> None:
        # Each bucket is weighted once, before the sum, as gradients differ in their numbers of samples.
        bucket = self._grad[start : self._end].mul_(self._weight)
        self._requests.append(self._comm.iallreduce(bucket, "gradient"))
        self._end = start
