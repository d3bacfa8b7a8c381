"""DiNNO: consensus ADMM for networks."""

import torch
from torch import Tensor

from nnlo_lib.algorithms.base import ReplicaView, SampleShare, relative_error
from nnlo_lib.algorithms.decentralized.base import DecentralizedAlgorithm
from nnlo_lib.algorithms.decentralized.neighbor_exchange import NeighborExchange


class DiNNO(DecentralizedAlgorithm):
    """Take B = `primal_iterations` local steps per round on the augmented Lagrangian of consensus.

        rho <- rho * rho_scaling;    p_i <- p_i + rho sum_j (theta_i - theta_j)
        theta_i <- B optimizer steps from theta_i^k on l_i(theta) + <theta, p_i> + rho sum_j |theta - (theta_i^k + theta_j^k) / 2|^2

    Yu, Vincent and Schwager, DiNNO, 2022, arXiv:2109.08665, algorithm 1. The penalty's gradient is written
    2 rho d_i (theta - theta_i^k) + rho sum_j (theta_i^k - theta_j^k), exactly zero if all nodes agree. This
    matters because an Adam that is restarted each round takes steps of sign(gradient). Invariant: the duals
    p_i sum to zero. Bytes per node and round: 4 P to each neighbor.
    """

    def __init__(
        self,
        around: NeighborExchange,
        rho: float = 0.1,
        rho_scaling: float = 1.0,
        primal_iterations: int = 2,
        persistent_optimizer: bool = False,
    ) -> None:
        super().__init__(around)
        self._rho, self.rho_scaling = rho, rho_scaling
        self.steps_per_round, self.persistent_optimizer = primal_iterations, persistent_optimizer
        self._step = torch.zeros(1, dtype=torch.int64)  # local step within the round
        self._degree = torch.zeros(1, dtype=torch.int64)

    def start(self, replica: ReplicaView) -> None:
        super().start(replica)
        self._dual, self._anchor, self._disagreement = (torch.zeros_like(replica.theta) for _ in range(3))

    def on_gradient(self, replica: ReplicaView, share: SampleShare) -> None:
        if self._step == 0:
            self._begin_round(replica)
        rho = self.rho
        replica.grad.add_(self._dual).add_(self._disagreement, alpha=rho)
        replica.grad.add_(replica.theta - self._anchor, alpha=2 * rho * int(self._degree))
        self._step.add_(1).remainder_(self.steps_per_round)

    @property
    def rho(self) -> float:
        """Penalty of the current round."""
        # The exchange that begins a round is already counted: the exponent of the first round is 0.
        return self._rho * self.rho_scaling ** (self.neighbors.round - 1)

    def _begin_round(self, replica: ReplicaView) -> None:
        # Before the exchange, which ends the round: afterwards, `degree` refers to the next round's graph.
        self._degree.fill_(self.neighbors.degree)
        self._anchor.copy_(replica.theta)
        self._disagreement.copy_(self.neighbors.exchange(replica.theta).disagreement())
        # A link changes the duals of its two nodes by opposite amounts: the sum of all duals stays zero.
        self._dual.add_(self._disagreement, alpha=self.rho)
        if not self.persistent_optimizer:
            replica.reset_optimizer()

    def telemetry(self, replica: ReplicaView) -> dict[str, float]:
        return {"invariant": relative_error(self.comm, self._dual, self._dual), "rho": self.rho}

    def state_tensors(self) -> dict[str, Tensor]:
        vectors = {"dual": self._dual, "anchor": self._anchor, "disagreement": self._disagreement}
        return {**vectors, "step": self._step, "degree": self._degree}
