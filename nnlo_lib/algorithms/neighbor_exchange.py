"""Exchange of vectors with the neighbors on a graph, and the context that an algorithm is built from."""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from nnlo_lib.comm.communicator import Communicator
from nnlo_lib.comm.compression.base import Compressor, ErrorFeedback, build_compressor
from nnlo_lib.config.compression import CompressionConfig
from nnlo_lib.config.data import DataConfig
from nnlo_lib.config.topology import TopologyConfig
from nnlo_lib.topology.topology import Topology, build_topology


@dataclass(frozen=True)
class NeighborVectors:
    """Vectors and weights of one round, as nodes see each other's vectors (the public copies if lossy)."""

    own: Tensor  # this node's vector (P,), as its neighbors see it; not a copy
    others: dict[int, Tensor]  # the neighbors' vectors (P,), as this node sees them, by rank; read only
    weights: dict[int, float]  # mixing weights w_ij of the neighbors j, by rank

    def mixing_delta(self) -> Tensor:
        """Return sum_j w_ij (x_j - x_i), a new vector: x_i plus this is row i of W x if the rows of W sum to one."""
        return self._sum(self.weights)

    def disagreement(self, weights: dict[int, float] | None = None) -> Tensor:
        """Return sum_j a_ij (x_i - x_j), row i of the Laplacian times x, with `weights` a_ij by rank, or 1."""
        return self._sum({other: -(weights[other] if weights else 1.0) for other in self.others})

    def _sum(self, weights: dict[int, float]) -> Tensor:
        total, difference = torch.zeros_like(self.own), torch.empty_like(self.own)
        # Differences are exactly zero if nodes agree, however weights are rounded. Neighbors are in ascending
        # order on every transport, which gives the same bits.
        for neighbor, vector in self.others.items():
            total.add_(torch.sub(vector, self.own, out=difference), alpha=weights[neighbor])
        return total


class NeighborExchange:
    """Exchange vectors with the neighbors of each round of a `topology`.

    With a lossy `compressor` a node sends its change since the last round. The node and its neighbors keep
    the same public copy of its vector; later rounds correct its error (Koloskova et al. 2019,
    arXiv:1902.00340, algorithm 2).
    """

    def __init__(self, comm: Communicator, topology: Topology, compressor: Compressor) -> None:
        self.comm, self.topology, self._compressor = comm, topology, compressor
        self.round = 0
        self._copies: dict[int, Tensor] = {}  # public copies of the neighbors and of this node, by rank

    @property
    def degree(self) -> int:
        """Number of neighbors in the next round."""
        return self.topology.at(self.round).degree(self.comm.rank)

    def set_initial(self, vector: Tensor) -> None:
        """Start the public copies, if any, from `vector`, the same on all nodes; call it in `start`."""
        if not self._compressor.lossless:
            # Lossy compression requires a static graph: round 0 has the neighbors of all rounds.
            known = [self.comm.rank, *self.topology.at(0).neighbors(self.comm.rank)]
            self._copies = {node: vector.clone() for node in known}

    def exchange(self, vector: Tensor) -> NeighborVectors:
        """Exchange `vector` (P,), which stays unchanged, with this round's neighbors; end the round. All nodes call it."""
        mixing = self.topology.at(self.round)
        weights, receivers = mixing.neighbors(self.comm.rank), mixing.receivers(self.comm.rank)
        if self._compressor.lossless:
            own = vector
            others = self.comm.exchange_like(vector, dict.fromkeys(receivers, vector), list(weights))
        else:
            own = self._copies[self.comm.rank]
            # The difference to the public copy includes the errors of earlier rounds: no residual is needed.
            payload = self._compressor.encode(vector - own, self.round, self.comm.rank)
            payloads = self.comm.exchange_like(payload, dict.fromkeys(receivers, payload), list(weights))
            change = torch.empty_like(vector)
            # A node decodes its own payload like its neighbors, so that all copies have the same bits.
            for node, encoded in {self.comm.rank: payload, **payloads}.items():
                self._compressor.decode(encoded, change)
                self._copies[node].add_(change)
            others = {source: self._copies[source] for source in weights}
        self.round += 1
        return NeighborVectors(own, others, weights)

    def exchange_in_turn(self, vector: Tensor) -> NeighborVectors:
        """Exchange `vector` node after node; `publish` must follow and ends the round.

        Lower-ranked neighbors send their mixed vectors by `publish`, higher-ranked ones send theirs before
        mixing.
        """
        weights, rank = self.topology.at(self.round).neighbors(self.comm.rank), self.comm.rank
        # send() never waits, so that nodes that then wait for lower-ranked neighbors cannot deadlock.
        for lower in filter(rank.__gt__, weights):
            self.comm.send(vector, lower)
        others = {neighbor: torch.empty_like(vector) for neighbor in weights}
        for neighbor, place in others.items():
            self.comm.receive(place, neighbor)
        return NeighborVectors(vector, others, weights)

    def publish(self, vector: Tensor) -> None:
        """Send the new `vector` to the higher-ranked neighbors and end the round."""
        for higher in filter(self.comm.rank.__lt__, self.topology.at(self.round).neighbors(self.comm.rank)):
            self.comm.send(vector, higher)
        self.round += 1

    def state(self) -> dict[str, Tensor]:
        """Return the tensors that a resumed run needs."""
        copies = {f"public.{node}": copy for node, copy in self._copies.items()}
        return {"round": torch.tensor([self.round]), **copies, **self._compressor.state()}

    def load_state(self, tensors: dict[str, Tensor]) -> None:
        """Restore the tensors that `state` returned."""
        self.round = int(tensors["round"])
        public = {name: copy for name, copy in tensors.items() if name.startswith("public.")}
        self._copies = {int(name.removeprefix("public.")): copy.clone() for name, copy in public.items()}
        self._compressor.load_state(tensors)


@dataclass(frozen=True)
class AlgorithmContext:
    """The argument `context` of `from_config`: communicator, seed and settings of a rank.

    Objects that follow from the settings are built on first access, and are then the same at each access.
    """

    comm: Communicator  # of the workers
    seed: int  # seed of the run, the same on all ranks
    compression: CompressionConfig  # section `compression` of the experiment
    graph: TopologyConfig  # section `topology`
    data: DataConfig | None = None  # of robots whose positions give the graph

    @cached_property
    def compressor(self) -> Compressor:
        """Compressor of one vector."""
        return build_compressor(self.compression, self.seed)

    @cached_property
    def error_feedback(self) -> ErrorFeedback:
        """Compressor of one vector that adds its residual to the next vector."""
        return ErrorFeedback(self.compressor, self.comm.rank)

    @cached_property
    def topology(self) -> Topology:
        """The graph between the ranks."""
        return build_topology(self.graph, self.comm.size, self.seed, self.data)

    @cached_property
    def neighbors(self) -> NeighborExchange:
        """The exchange of vectors with the neighbors in `topology`."""
        return NeighborExchange(self.comm, self.topology, self.compressor)
