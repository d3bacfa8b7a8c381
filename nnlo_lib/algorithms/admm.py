"""Primal-dual algorithms on a graph: `dinno` (`cadmm`) and `prox_pda`."""

import torch
from torch import Tensor

from nnlo_lib.algorithms.base import ReplicaView, SampleShare, relative_error
from nnlo_lib.algorithms.dsgd import DecentralizedAlgorithm
from nnlo_lib.algorithms.neighbor_exchange import NeighborExchange

DEFAULT_PENALTY = 0.6  # mean over the nodes of sum_j beta_ij; measured: docs/reference/algorithms.md#defaults


class DiNNO(DecentralizedAlgorithm):
    """Take B = `primal_iterations` local steps per round on the augmented Lagrangian of consensus.

        rho <- rho * rho_scaling;    p_i <- p_i + rho sum_j (theta_i - theta_j)
        theta_i <- B optimizer steps from theta_i^k on l_i(theta) + <theta, p_i> + rho sum_j |theta - (theta_i^k + theta_j^k) / 2|^2

    Yu, Vincent and Schwager, DiNNO, 2022, arXiv:2109.08665, algorithm 1. The penalty's gradient is written
    2 rho d_i (theta - theta_i^k) + rho sum_j (theta_i^k - theta_j^k), exactly zero if all nodes agree. This
    matters because an Adam that is restarted each round takes steps of sign(gradient).

    With `duals: edge`, each link has its own duals p_ij <- p_ij + rho (theta_i - theta_j), and p_i is their sum over
    the links of the round. The dual of a lost link waits, as its penalty does, until the two nodes meet again (Zhao et
    al., UDON, 2025, arXiv:2509.12702, without its weights for uncertainty). Without lost links, both are the same.
    Invariant: the duals p_i of a round sum to zero, and p_ij = -p_ji. Bytes per node and round: 4 P to each neighbor.
    """

    def __init__(
        self,
        around: NeighborExchange,
        rho: float = 0.1,
        rho_scaling: float = 1.0,
        primal_iterations: int = 2,
        persistent_optimizer: bool = False,
        duals: str = "node",
    ) -> None:
        super().__init__(around)
        self._rho, self.rho_scaling = rho, rho_scaling
        self.steps_per_round, self.persistent_optimizer = primal_iterations, persistent_optimizer
        self._step = torch.zeros(1, dtype=torch.int64)  # local step within the round
        self._degree = torch.zeros(1, dtype=torch.int64)
        self._keeps_edges = duals == "edge"
        self._edges: dict[int, Tensor] = {}  # duals of the links with each node met so far, by rank

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
        vectors = self.neighbors.exchange(replica.theta)
        if self._keeps_edges:
            self._dual.zero_()
            for other, vector in vectors.others.items():
                if other not in self._edges:
                    self._edges[other] = torch.zeros_like(vector)
                self._dual.add_(self._edges[other].add_(vectors.own - vector, alpha=self.rho))
        self._disagreement.copy_(vectors.disagreement())
        # A link changes the duals of its two nodes by opposite amounts: the sum of all duals stays zero.
        if not self._keeps_edges:
            self._dual.add_(self._disagreement, alpha=self.rho)
        if not self.persistent_optimizer:
            replica.reset_optimizer()

    def telemetry(self, replica: ReplicaView) -> dict[str, float]:
        return {"invariant": relative_error(self.comm, self._dual, self._dual), "rho": self.rho}

    def state_tensors(self) -> dict[str, Tensor]:
        vectors = {"dual": self._dual, "anchor": self._anchor, "disagreement": self._disagreement}
        edges = {f"dual.{other}": edge for other, edge in self._edges.items()}
        return {**vectors, "step": self._step, "degree": self._degree, **edges}

    def load_state(self, tensors: dict[str, Tensor]) -> None:
        met = (name.rpartition(".dual.")[2] for name in tensors if ".dual." in name)
        self._edges = {int(other): torch.zeros_like(self._dual) for other in met}
        super().load_state(tensors)


class ProxPDA(DecentralizedAlgorithm):
    """Raise the price of disagreement (the duals), then minimize the linearized augmented Lagrangian exactly.

        m_i <- momentum m_i + (1 - momentum) g_i;    p_i <- p_i + sum_j beta_ij (theta_i - theta_j)
        theta_i <- (1 / 2 b_i) sum_j beta_ij (theta_i + theta_j) - (m_i + p_i) / (2 b_i);    b_i = sum_j beta_ij

    Hong, Hajinezhad and Zhao, Prox-PDA, ICML 2017, with the constraint matrix diag(beta_ij)^(1/2) A, and B'B its
    signless Laplacian; the penalty matrix is 2 diag(b_i). A number `beta` is the paper's penalty, the same for every
    link: b_i = beta d_i for d_i neighbors.

    With `beta: null`, beta_ij = 0.3 (1 / d_i + 1 / d_j), equal at both ends of a link, because the duals sum to zero
    only then. The b_i have the mean 0.6 on every graph, and none is below 0.3. The mean of the parameters, weighted by
    b_i, moves by 1 / 1.2 of the mean gradient.

    With `momentum: 0`, the rule is the paper's, plain gradient descent with the step 1 / (2 b_i). On bipartite graphs
    it is stable up to a curvature of b_i of the loss, a quarter of that of gradient descent. The moving average m_i, an
    addition, raises this limit by (1 + momentum) / (1 - momentum). The local optimizer is not used. Invariant: the
    duals p_i sum to zero. Bytes per node and step: 4 P to each neighbor.
    """

    owns_step = True

    def __init__(self, around: NeighborExchange, beta: float | None, momentum: float) -> None:
        super().__init__(around)
        # prox_pda requires a static graph: round 0 has the links of all rounds.
        mixing, rank = around.topology.at(0), around.comm.rank
        # (1 / d_i + 1 / d_j) / 2 for each neighbor j of this node i, with the number d of neighbors.
        own = 1 / mixing.degree(rank)
        links = {other: (own + 1 / mixing.degree(other)) / 2 for other in mixing.neighbors(rank)}
        # Unit weights, not products with beta: a number gives bit for bit the rule without weights.
        self._weights = links if beta is None else dict.fromkeys(links, 1.0)
        self._beta, self.momentum = DEFAULT_PENALTY if beta is None else beta, momentum

    def start(self, replica: ReplicaView) -> None:
        super().start(replica)
        self._dual, self._average = (torch.zeros_like(replica.theta) for _ in range(2))

    def on_gradient(self, replica: ReplicaView, share: SampleShare) -> None:
        degree = sum(self._weights.values())
        disagreement = self.neighbors.exchange(replica.theta).disagreement(self._weights)
        self._dual.add_(disagreement, alpha=self._beta)
        # Without momentum, the average is bit for bit the gradient.
        self._average.lerp_(replica.grad, 1 - self.momentum)
        # theta_i - sum_j beta_ij (theta_i - theta_j) / (2 b_i) = (1 / 2 b_i) sum_j beta_ij (theta_i + theta_j).
        replica.theta.sub_(disagreement, alpha=1 / (2 * degree))
        replica.theta.sub_(self._average + self._dual, alpha=1 / (2 * self._beta * degree))

    def telemetry(self, replica: ReplicaView) -> dict[str, float]:
        return {"invariant": relative_error(self.comm, self._dual, self._dual)}

    def state_tensors(self) -> dict[str, Tensor]:
        return {"dual": self._dual, "average": self._average}
