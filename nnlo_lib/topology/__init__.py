"""Graphs between nodes and the matrices they mix their parameters with."""

from nnlo_lib.topology.mixing import Mixing
from nnlo_lib.topology.topology import Topology, topology

__all__ = ["Mixing", "Topology", "topology"]
