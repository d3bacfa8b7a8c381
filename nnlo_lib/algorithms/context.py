"""The arguments that a rank's algorithm is built from, besides its own settings."""

from dataclasses import dataclass
from functools import cached_property

from nnlo_lib.algorithms.decentralized.neighbor_exchange import NeighborExchange
from nnlo_lib.comm.communicator import Communicator
from nnlo_lib.comm.compression.base import Compressor
from nnlo_lib.comm.compression.error_feedback import ErrorFeedback
from nnlo_lib.comm.compression.factory import build_compressor
from nnlo_lib.config.compression import CompressionConfig
from nnlo_lib.config.topology import TopologyConfig
from nnlo_lib.topology.topology import Topology, build_topology


@dataclass(frozen=True)
class AlgorithmContext:
    """Communicator, seed and settings of a rank; derived objects are built on first access."""

    comm: Communicator
    seed: int
    compression: CompressionConfig
    graph: TopologyConfig

    @cached_property
    def compressor(self) -> Compressor:
        """The run's compressor, for one vector."""
        return build_compressor(self.compression, self.seed)

    @cached_property
    def error_feedback(self) -> ErrorFeedback:
        """The run's compressor with error feedback: it adds its residual to the next vector."""
        return ErrorFeedback(self.compressor, self.comm.rank)

    @cached_property
    def topology(self) -> Topology:
        """The graph between the ranks."""
        return build_topology(self.graph, self.comm.size, self.seed)

    @cached_property
    def neighbors(self) -> NeighborExchange:
        """The exchange of vectors with the neighbors in `topology`."""
        return NeighborExchange(self.comm, self.topology, self.compressor)
