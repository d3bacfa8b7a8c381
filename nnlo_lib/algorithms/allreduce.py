"""Synchronous SGD, `allreduce`: the gradient's sum in buckets during the backward pass, or compressed after it."""

from torch import Tensor

from nnlo_lib.algorithms.base import Algorithm, ReplicaView, SampleShare, fraction_unequal, mean_buffers
from nnlo_lib.algorithms.neighbor_exchange import AlgorithmContext
from nnlo_lib.comm.communicator import Communicator, Request
from nnlo_lib.comm.compression.base import ErrorFeedback, compressed_allreduce
from nnlo_lib.config.algorithm import AllReduceConfig


class AllReduce(Algorithm):
    """Average the gradients of all ranks at every step, weighted by their samples.

        g = sum_i (b_i / b) g_i,    theta <- optimizer(theta, g)      b_i samples on rank i, b = sum_i b_i

    Chen et al., Revisiting Distributed Synchronous SGD, 2016. The same as one process with the combined
    batch; Theano-MPI's `cdd` is the same mathematics. Invariant: all replicas are equal after each step.
    Bytes per rank and step: 8 P (n - 1) / n, or 4 P (n - 1) if that is at most 32 KiB. Messages of `bucket`
    bytes are sent while the backward pass still runs; with 0, one message is sent after it. Both give the
    same bits.

    `shard: optimizer` is ZeRO's stage 1 (Rajbhandari et al. 2020, arXiv:1910.02054): each rank adds, and its
    optimizer updates, one part; then all parts are gathered. 8 P (n - 1) / n bytes, the same bits.
    """

    def __init__(self, comm: Communicator, bucket: int = 0) -> None:
        super().__init__(comm)
        self._buckets = GradientBuckets(comm, bucket)

    @classmethod
    def from_config(cls, config: AllReduceConfig, context: AlgorithmContext) -> Algorithm:
        """Return the algorithm, with error feedback if the compression is lossy."""
        if not context.compressor.lossless:
            return CompressedAllReduce(context.comm, context.error_feedback)
        if config.shard == "optimizer":
            return ShardedAllReduce(context.comm)
        return cls(context.comm, round(1e6 * config.bucket_mb))

    def on_batch(self, replica: ReplicaView, share: SampleShare) -> None:
        if self.comm.size > 1:
            self._buckets.begin(replica, share.count / share.global_count)

    def on_gradient(self, replica: ReplicaView, share: SampleShare) -> None:
        if self.comm.size > 1:
            self._buckets.finish(replica, share.count / share.global_count)

    def before_evaluation(self, replica: ReplicaView) -> None:
        mean_buffers(self.comm, replica, self.comm.size, is_worker=True)

    def telemetry(self, replica: ReplicaView) -> dict[str, float]:
        return {"invariant": fraction_unequal(self.comm, replica.theta)}


class CompressedAllReduce(AllReduce):
    """All-reduce of compressed gradients; error feedback sends the compression errors in later steps.

    Bytes per rank and step: (n - 1) compressed vectors.
    """

    def __init__(self, comm: Communicator, feedback: ErrorFeedback) -> None:
        super().__init__(comm)
        self._feedback = feedback

    # Overrides the buckets: compressors encode the whole gradient, after the backward pass.
    def on_batch(self, replica: ReplicaView, share: SampleShare) -> None:
        pass

    def on_gradient(self, replica: ReplicaView, share: SampleShare) -> None:
        replica.grad.mul_(share.count / share.global_count)
        compressed_allreduce(self.comm, self._feedback, replica.grad)

    def state(self) -> dict[str, Tensor]:
        return self._feedback.state()

    def load_state(self, tensors: dict[str, Tensor]) -> None:
        self._feedback.load_state(tensors)


class ShardedAllReduce(AllReduce):
    """All-reduce in two halves, between which each rank's optimizer updates its part of the parameters.

    Between the halves, `grad` has the sum in the rank's part only. Bytes per rank and step: 8 P (n - 1) / n.
    """

    shards_optimizer = True

    # Overrides the buckets, whose parts would belong to several ranks.
    def on_batch(self, replica: ReplicaView, share: SampleShare) -> None:
        pass

    def on_gradient(self, replica: ReplicaView, share: SampleShare) -> None:
        replica.grad.mul_(share.count / share.global_count)
        self.comm.reduce_scatter(replica.grad)

    def on_parameters(self, replica: ReplicaView) -> None:
        self.comm.allgather(replica.theta)


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
