"""Communicators between ranks: MPI, GPUs, simulation; compression and accounting of their messages."""
