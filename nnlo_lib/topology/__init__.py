"""Graphs between nodes and the matrices they mix their parameters with."""

from nnlo_lib.topology.mixing import MixingMatrix
from nnlo_lib.topology.topology import Topology, build_topology

__all__ = ["MixingMatrix", "Topology", "build_topology"]
