"""Synchronous data parallel SGD."""

from torch import Tensor

from nnlo_lib.algorithms.base import Algorithm, ReplicaView, SampleShare, fraction_unequal, mean_buffers
from nnlo_lib.algorithms.collective.buckets import GradientBuckets
from nnlo_lib.algorithms.context import AlgorithmContext
from nnlo_lib.comm.communicator import Communicator
from nnlo_lib.comm.compression.compressed_allreduce import compressed_allreduce
from nnlo_lib.comm.compression.error_feedback import ErrorFeedback
from nnlo_lib.config.collective import AllReduceConfig


class AllReduce(Algorithm):
    """Average the gradients of all ranks at every step, weighted by their samples.

        g = sum_i (b_i / b) g_i,    theta <- optimizer(theta, g)      b_i samples on rank i, b = sum_i b_i

    Chen et al., Revisiting Distributed Synchronous SGD, 2016. The same as one process with the combined
    batch; Theano-MPI's `cdd` is the same mathematics. Invariant: all replicas are equal after each step.
    Bytes per rank and step: 8 P (n - 1) / n, or 4 P (n - 1) if that is at most 32 KiB. Messages of `bucket`
    bytes are sent while the backward pass still runs; with 0, one message is sent after it. Both give the
    same bits.
    """

    def __init__(self, comm: Communicator, bucket: int = 0) -> None:
        super().__init__(comm)
        self._buckets = GradientBuckets(comm, bucket)

    @classmethod
    def from_config(cls, config: AllReduceConfig, context: AlgorithmContext) -> Algorithm:
        """Return the algorithm, with error feedback if the compression is lossy."""
        if not context.compressor.lossless:
            return CompressedAllReduce(context.comm, context.error_feedback)
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
