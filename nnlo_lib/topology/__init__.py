"""Graphs between nodes, and the matrices with which the nodes mix their parameters."""

from nnlo_lib.topology.mixing_matrix import MixingMatrix
from nnlo_lib.topology.topology import Topology, build_topology

__all__ = ["MixingMatrix", "Topology", "build_topology"]
