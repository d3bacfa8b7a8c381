"""The baseline: no agreement at all."""

from nnlo_lib.algorithms.base import Algorithm, ReplicaView, SampleShare


class Individual(Algorithm):
    """Let every replica learn alone, from common initial parameters.

        theta_i <- optimizer(theta_i, g_i)

    DiNNO's `individual training`: what agreement must beat. Bytes: none but the start's.
    """

    replicas_differ = True

    def on_gradient(self, replica: ReplicaView, share: SampleShare) -> None:
        pass

    def before_evaluation(self, replica: ReplicaView) -> None:
        pass
