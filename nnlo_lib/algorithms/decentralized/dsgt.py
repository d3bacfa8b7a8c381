"""Distributed stochastic gradient tracking."""

from nnlo_lib.algorithms.base import ReplicaView, SampleShare
from nnlo_lib.algorithms.decentralized.gradient_tracking import GradientTracking


class DSGT(GradientTracking):
    """Step along y, a tracker of the mean gradient; average parameters and tracker with the neighbors.

        y_i <- sum_j w_ij y_j + g_i - g_i^previous  (first: g_i);    theta_i <- sum_j w_ij optimizer(theta_j, y_j)

    Pu and Nedic, Distributed Stochastic Gradient Tracking Methods, 2021, arXiv:1805.11454, equations (2)-(3).
    Invariant: the mean of the y_i is the mean of the g_i, relative to the largest g_i so far. Bytes per node
    and step: 8 P to each neighbor, in one message.
    """

    def on_gradient(self, replica: ReplicaView, share: SampleShare) -> None:
        self.track(replica.grad)
        replica.grad.copy_(self._tracker)

    def on_parameters(self, replica: ReplicaView) -> None:
        self.mix(replica, replica.theta)
