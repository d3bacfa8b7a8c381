"""The baseline without any synchronization."""

from nnlo_lib.algorithms.base import Algorithm, ReplicaView, SampleShare


class Individual(Algorithm):
    """Train every replica alone, from common initial parameters.

        theta_i <- optimizer(theta_i, g_i)

    DiNNO's `individual training`: the baseline that synchronization must beat. Bytes: only the initial
    broadcast.
    """

    replicas_differ = True

    def on_gradient(self, replica: ReplicaView, share: SampleShare) -> None:
        pass

    def before_evaluation(self, replica: ReplicaView) -> None:
        pass
