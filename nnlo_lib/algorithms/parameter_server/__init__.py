"""Algorithms in which workers exchange gradients or parameters with a server."""
