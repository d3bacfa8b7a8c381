"""The gradient's sum over ranks, begun while the backward pass still computes."""

from nnlo_lib.algorithms.base import ReplicaView
from nnlo_lib.comm.communicator import Communicator, Request


class GradientBuckets:
    """Sums a replica's gradient over ranks in buckets, each sent as soon as the backward pass has finished it.

    Li et al., PyTorch Distributed, VLDB 2020, section 3.2.3. Buckets of `size` bytes are cut from the end of the flat
    gradient, where backward passes begin, wherever layers end; the last one is larger, up to twice. They are the same
    on all ranks and leave in the same order, also where a rank has no samples or does not use a parameter. size 0: one
    message after the backward pass. The sums of values in rank order do not depend on how they are cut.
    """

    def __init__(self, comm: Communicator, size: int = 0) -> None:
        self._comm, self._size = comm, size
        self._watched: ReplicaView | None = None
        self._end = 0  # grad[:end] is not yet on its way; 0 between steps
        self._requests: list[Request] = []

    def begin(self, replica: ReplicaView, weight: float) -> None:
        """Expect a gradient, to be multiplied by `weight`."""
        self._grad, self._weight, self._end = replica.grad, weight, replica.grad.numel()
        if self._size and self._watched is not replica:
            self._watched = replica
            replica.on_gradient_ready(self._ready)

    def finish(self, replica: ReplicaView, weight: float) -> None:
        """Overwrite grad by the sum of weight * grad over ranks."""
        if not self._end:
            self.begin(replica, weight)
        self._ready(0)
        self._send(0)
        for request in self._requests:
            request.wait()
        self._requests.clear()

    def _ready(self, start: int) -> None:
        """Send what makes whole buckets of grad[start:], as long as one is left."""
        values = self._size // self._grad.element_size() or self._grad.numel()
        while self._end - values >= max(start, values):
            self._send(self._end - values)

    def _send(self, start: int) -> None:
        bucket = self._grad[start : self._end].mul_(self._weight)
        self._requests.append(self._comm.iallreduce(bucket, "gradient"))
        self._end = start
