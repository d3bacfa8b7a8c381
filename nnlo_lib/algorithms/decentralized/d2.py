"""D2, exact diffusion."""

from torch import Tensor

from nnlo_lib.algorithms.base import ReplicaView, SampleShare, relative_error
from nnlo_lib.algorithms.decentralized.base import DecentralizedAlgorithm


class D2(DecentralizedAlgorithm):
    """Correct the local step's result psi_j by theta_j - psi_j^previous, then average with the neighbors.

        psi_i = optimizer(theta_i, g_i);    theta_i <- sum_j w_ij (psi_j + theta_j - psi_j^previous)  (first: psi_j)

    Tang et al., D2: Decentralized Training over Decentralized Data, 2018, arXiv:1803.07068, algorithm 1: with
    SGD theta <- W (2 theta - theta^previous - lr (g - g^previous)). W must be symmetric with eigenvalues
    above -1/3. Invariant: the mean of the parameters is the mean of the psi_i. Bytes per node and step: 4 P
    to each neighbor.
    """

    def start(self, replica: ReplicaView) -> None:
        super().start(replica)
        # With psi^previous = theta, the first step has no correction. `_theta` is no state to save, because
        # `on_gradient` sets it in every step.
        self._theta, self._psi = replica.theta.clone(), replica.theta.clone()

    def on_gradient(self, replica: ReplicaView, share: SampleShare) -> None:
        self._theta.copy_(replica.theta)

    def on_parameters(self, replica: ReplicaView) -> None:
        corrected = replica.theta + self._theta - self._psi
        self._psi.copy_(replica.theta)
        replica.theta.copy_(corrected.add_(self.neighbors.exchange(corrected).mixing_delta()))

    def telemetry(self, replica: ReplicaView) -> dict[str, float]:
        return {"invariant": relative_error(self.comm, replica.theta - self._psi, replica.theta)}

    def state_tensors(self) -> dict[str, Tensor]:
        return {"psi": self._psi}
