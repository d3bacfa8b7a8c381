"""Ranks, threads, GPUs and memory of a training, computed from the options of its launch."""

from dataclasses import dataclass, field
from functools import cached_property

from nnlo_lib.compat.importers.shell.launch_settings import LaunchSettings

SET_MEANINGS = ("resource_sets", "nodes", "sets_per_node")


@dataclass(frozen=True)
class RankLayout:
    """Ranks of a training and their share of a machine, computed from the options of its launch.

    Attributes:
        launcher: name of the launcher, or an empty string if the command starts one process itself.
        job: options of the job in which the launcher runs.
        step: options of the launcher, which take precedence.
    """

    launcher: str = ""
    job: LaunchSettings = field(default_factory=LaunchSettings)
    step: LaunchSettings = field(default_factory=LaunchSettings)

    @cached_property
    def settings(self) -> LaunchSettings:
        """Options of the job and of the launcher."""
        return self.job.merged(self.step)

    @property
    def ranks(self) -> tuple[int, str]:
        """Number of ranks, and the options from which it follows."""
        if not self.launcher:
            return 1, ""
        return _rank_count(self.step) or _rank_count(self.settings) or self._default_ranks()

    def _default_ranks(self) -> tuple[int, str]:
        """Return one rank per node of the job, or one rank for launchers that ignore the job."""
        if self.nodes and self.launcher not in ("aprun", "jsrun"):
            return self.nodes, self.settings.source("nodes", "hosts")
        return 1, ""

    @property
    def has_unknown_ranks(self) -> bool:
        """True if the number of ranks is neither written nor 1 by the launcher's default."""
        by_site = self.launcher in ("jsrun", "ibrun") or "unknown_hosts" in self.settings.texts
        return by_site and self.ranks == (1, "")

    @property
    def nodes(self) -> int:
        """Number of nodes; 0 if it is not given."""
        numbers = self.settings.numbers
        if per_node := numbers.get("ranks_per_node", 0) if "ranks" in numbers else 0:
            return numbers.get("nodes") or numbers.get("hosts") or -(-numbers["ranks"] // per_node)
        return numbers.get("nodes") or numbers.get("hosts", 0)

    @property
    def threads(self) -> tuple[int, str]:
        """Cores of a rank, and the options from which the number follows; 0 if it is not given."""
        numbers = self.settings.numbers
        if "threads_per_set" in numbers:
            each = max(1, numbers["threads_per_set"] // numbers.get("ranks_per_set", 1))
            return each, self.settings.source("threads_per_set", "ranks_per_set")
        return numbers.get("threads", 0), self.settings.source("threads")

    @property
    def gpus(self) -> tuple[int, str]:
        """Number of GPUs of all ranks, and the options from which it follows; -1 if no option names GPUs."""
        numbers, source = self.settings.numbers, self.settings.source
        if "gpus_per_rank" in numbers:
            return numbers["gpus_per_rank"] * self.ranks[0], source("gpus_per_rank")
        if "gpus_per_set" in numbers:
            return numbers["gpus_per_set"] * (resource_sets(self.settings) or 1), source("gpus_per_set")
        if "gpus" in numbers:
            return numbers["gpus"], source("gpus")
        if "gpus_per_node" in numbers:
            return numbers["gpus_per_node"] * (self.nodes or 1), source("gpus_per_node", "nodes")
        return -1, ""

    @property
    def memory_mb(self) -> tuple[int, str]:
        """Memory of all ranks in MB, and the options from which it follows; 0 if it is not given."""
        numbers, source = self.settings.numbers, self.settings.source
        if "memory_per_node" in numbers:
            return numbers["memory_per_node"] * (self.nodes or 1), source("memory_per_node", "nodes")
        cores = self.ranks[0] * max(1, self.threads[0])
        return numbers.get("memory_per_cpu", 0) * cores, source("memory_per_cpu")


def resource_sets(settings: LaunchSettings) -> int:
    """Return the number of resource sets of jsrun; 0 if the options do not state it."""
    numbers = settings.numbers
    return numbers.get("resource_sets") or numbers.get("nodes", 0) * numbers.get("sets_per_node", 0)


def _rank_count(settings: LaunchSettings) -> tuple[int, str] | None:
    """Return the number of ranks that options state, and these options; None if they state none."""
    numbers, source = settings.numbers, settings.source
    if sets := resource_sets(settings):
        count = sets * numbers.get("ranks_per_set", 1)
        meanings = SET_MEANINGS[:1] if "resource_sets" in numbers else SET_MEANINGS[1:]
        return count, source(*meanings, "ranks_per_set")
    for meaning in ("ranks", "slots"):
        if meaning in numbers:
            return numbers[meaning], source(meaning)
    if {"nodes", "ranks_per_node"} <= set(numbers):
        return numbers["nodes"] * numbers["ranks_per_node"], source("nodes", "ranks_per_node")
    return None
