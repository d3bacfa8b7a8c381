"""The baseline: no agreement at all."""

from nnlo_lib.algorithms.algorithm import Algorithm, Model, Share


class Individual(Algorithm):
    """Let every replica learn alone, from common initial parameters.

        theta_i <- optimizer(theta_i, g_i)

    DiNNO's `individual training`: what agreement must beat. Bytes: none but the start's.
    """

    apart = True

    def on_gradient(self, replica: Model, share: Share) -> None:
        pass

    def on_epoch(self, replica: Model) -> None:
        pass
