"""Local SGD: replicas learn alone and average their parameters every few steps."""

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

    Stich, Local SGD Converges Fast and Communicates Little, 2019, algorithm 1; with one epoch for H it is McMahan et
    al.'s FedAvg of equal clients. Optimizer states stay local. Invariant: after a meeting all replicas are equal.
    Bytes per rank: those of an all-reduce of 4 P, every H steps.

    With `compression`, ranks send what changed since the last meeting, and what its payload left out with the next
    (Basu et al., Qsparse-local-SGD, 2019, algorithm 1): n - 1 compressed vectors per rank, every H steps.
    """

    @classmethod
    def from_config(cls, config: AverageConfig, context: AlgorithmContext) -> Algorithm:
        """Return the algorithm, of changes where compression loses something."""
        if not context.compressor.lossless:
            return CompressedAverage(context.comm, config.sync_every, context.error_feedback)
        return cls(context.comm, config.sync_every)

    def synchronize(self, replica: ReplicaView) -> None:
        self.comm.allreduce(replica.theta, "parameters")
        replica.theta.div_(self.comm.size)


class CompressedAverage(DiLoCo):
    """Average compressed changes: an outer step of rate 1 without momentum."""

    def __init__(self, comm: Communicator, sync_every: int, feedback: ErrorFeedback) -> None:
        super().__init__(comm, sync_every, 1.0, 0.0, feedback)
