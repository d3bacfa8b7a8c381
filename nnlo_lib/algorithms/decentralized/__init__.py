"""Algorithms in which nodes exchange vectors with their neighbors on a graph, round by round."""
