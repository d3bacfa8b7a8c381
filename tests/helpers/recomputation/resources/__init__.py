"""Recomputation of time, memory, messages, attempts and operations."""
