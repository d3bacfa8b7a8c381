"""Graphs between nodes, and the matrices with which the nodes mix their parameters."""
