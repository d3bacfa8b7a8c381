"""Local SGD: replicas train alone and average their parameters every few steps."""

from nnlo_lib.algorithms.base import Algorithm, ReplicaView
from nnlo_lib.algorithms.collective.diloco import DiLoCo
from nnlo_lib.algorithms.collective.periodic import PeriodicSync
from nnlo_lib.algorithms.context import AlgorithmContext
from nnlo_lib.comm.communicator import Communicator
from nnlo_lib.comm.compression.error_feedback import ErrorFeedback
from nnlo_lib.config.collective import AverageConfig


class Average(PeriodicSync):
    """Average the parameters every H = `sync_every` steps.

        theta_i <- optimizer(theta_i, g_i), H times;    theta_i <- (1/n) sum_j theta_j

    Stich, Local SGD Converges Fast and Communicates Little, 2019, algorithm 1; if H is one epoch, it is
    McMahan et al.'s FedAvg with equal clients. Optimizer states stay local. Invariant: after each
    synchronization all replicas are equal. Bytes per rank: an all-reduce of 4 P every H steps.

    With `compression`, ranks send the change since the last synchronization, and add the compression error to
    the next change (Basu et al., Qsparse-local-SGD, 2019, algorithm 1): n - 1 compressed vectors per rank,
    every H steps.
    """

    @classmethod
    def from_config(cls, config: AverageConfig, context: AlgorithmContext) -> Algorithm:
        """Return the algorithm; if the compression is lossy, the variant that averages changes."""
        if not context.compressor.lossless:
            return CompressedAverage(context.comm, config.sync_every, context.error_feedback)
        return cls(context.comm, config.sync_every)

    def synchronize(self, replica: ReplicaView) -> None:
        self.comm.allreduce(replica.theta, "parameters")
        replica.theta.div_(self.comm.size)


class CompressedAverage(DiLoCo):
    """Average compressed changes: DiLoCo with an outer learning rate of 1 and no momentum."""

    def __init__(self, comm: Communicator, sync_every: int, feedback: ErrorFeedback) -> None:
        super().__init__(comm, sync_every, 1.0, 0.0, feedback)
