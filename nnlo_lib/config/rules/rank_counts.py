"""Checks that the ranks of a run suffice for servers and workers, and can be divided into workers."""

from collections.abc import Iterator
from typing import Any

from nnlo_lib.config.base import ConfigFault

RANKS = ("parallel", "ranks")


def rank_count_faults(run: Any) -> Iterator[ConfigFault]:
    """Yield the faults of a run (config.Run) in the numbers of its ranks, servers and processes per worker."""
    ranks, group, servers = run.parallel.ranks, run.parallel.processes_per_worker, run.algorithm.servers
    row = run.algorithm.capabilities
    if group > 1 and not row.supports_worker_groups:
        yield ConfigFault(
            f"{run.algorithm.name} does not support workers of several processes; set `parallel.processes_per_worker: 1`",
            ("parallel", "processes_per_worker"),
        )
    # Each server below the root needs a worker.
    workers = max(row.min_ranks - bool(servers), servers - 1)
    if ranks < servers + workers * group:
        yield _too_few_ranks(run, workers)
    if rest := (ranks - servers) % group:
        minus = {0: "", 1: " minus one server"}.get(servers, f" minus {servers} servers")
        yield ConfigFault(
            f"{ranks} ranks{minus} cannot be divided into workers of {group} ranks; set `parallel.ranks` to "
            f"{ranks - rest} or {ranks - rest + group}, or change `parallel.processes_per_worker`",
            RANKS,
        )


def _too_few_ranks(run: Any, workers: int) -> ConfigFault:
    """Return the fault of a run (config.Run) that has fewer than `workers` workers, the required number."""
    group, servers, name = run.parallel.processes_per_worker, run.algorithm.servers, run.algorithm.name
    least = servers + workers * group
    if servers > 1:
        plural = "s" if workers > 1 else ""
        return ConfigFault(
            f"{servers} masters require at least {workers} worker{plural}, one for each server below the root; "
            f"lower `algorithm.masters`, or set `parallel.ranks: {least}` or more",
            ("algorithm", "masters"),
        )
    of = f" of {group} ranks" if group > 1 else ""
    reason = f"one worker{of}" if workers == 1 else f"a node{of} exchanges vectors with another node"
    reason = f"one server and {reason}" if servers else reason
    return ConfigFault(
        f"{name} requires at least {least} ranks ({reason}); set `parallel.ranks: {least}` or more", RANKS
    )
