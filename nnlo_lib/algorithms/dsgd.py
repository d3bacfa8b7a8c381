"""Decentralized SGD."""

from nnlo_lib.algorithms.algorithm import Model
from nnlo_lib.algorithms.neighbour import Mixing
from nnlo_lib.algorithms.neighbourhood import Neighbourhood


class DSGD(Mixing):
    """Step, then average with the neighbours.

        theta_i <- sum_j w_ij optimizer(theta_j, g_j)

    Nedic and Ozdaglar, 2009, in the adapt-then-combine order; gradients are taken at mixed parameters, as in DiNNO's
    code, which mixes `in_place`, node after node: then W is not doubly stochastic, and some nodes weigh more.
    Invariant: mixing keeps the mean of the parameters. Bytes per node and step: 4 P to each neighbour.
    """

    def __init__(self, around: Neighbourhood, in_place: bool = False) -> None:
        super().__init__(around)
        self.in_place = in_place

    def on_parameters(self, replica: Model) -> None:
        if self.in_place:
            self.move(replica, self.around.meet_in_turn(replica.theta).drift())
            self.around.tell(replica.theta)
        else:
            self.move(replica, self.around.meet(replica.theta).drift())

    def telemetry(self, replica: Model) -> dict[str, float]:
        return {} if self.in_place else super().telemetry(replica)
