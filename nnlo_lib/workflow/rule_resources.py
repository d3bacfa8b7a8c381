"""Resources of the jobs of a training rule as functions of Snakemake's wildcards."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any

from nnlo_lib.config import Run
from nnlo_lib.config.experiment import RunResources
from nnlo_lib.launch.attempt_recovery import all_attempts
from nnlo_lib.state.attempt_outcome import memory_for_next_attempt

Wildcards = Any
SITE_RESOURCES = tuple(RunResources(Run()).site)


def site_resources_of(runs: Sequence[Run]) -> tuple[str, ...]:
    """Return the names of the site resources that at least one run sets; the profile sets the others."""
    requested = [RunResources(run).site for run in runs]
    return tuple(name for name in SITE_RESOURCES if any(site[name] for site in requested))


@dataclass(frozen=True)
class RuleResources:
    """The `threads` and `resources` of a rule that trains.

    Args:
        run: returns the run of a job; raises FileNotFoundError if it is not known yet.
        state: returns the training's `state/`.
        site_names: names of the site resources that the rule sets.
    """

    run: Callable[[Wildcards], Run]
    state: Callable[[Wildcards], Path]
    site_names: tuple[str, ...]

    def threads(self, wildcards: Wildcards) -> int:
        """Return the cores of a job; 1 if its training is not known yet, because Snakemake needs a number."""
        try:
            return RunResources(self.run(wildcards)).cores
        except FileNotFoundError:
            return 1

    @property
    def resources(self) -> dict[str, Any]:
        """Resources that the experiment determines."""
        return {
            **{name: self._of_site(name) for name in self.site_names},
            "tasks": self._of_run("processes"),
            "nodes": self._of_run("nodes"),
            "cpus_per_task": self._of_run("threads_per_process"),
            "runtime": self._of_run("runtime_min"),
            "mem_mb": lambda wildcards, attempt: self._memory(wildcards, attempt),
            "attempt": lambda wildcards, attempt: attempt,
        }

    def _of_site(self, name: str) -> Callable[[Wildcards], int | str]:
        return lambda wildcards: RunResources(self.run(wildcards)).site[name]

    def _of_run(self, name: str) -> Callable[[Wildcards], int]:
        value: Callable[[RunResources], int] = attrgetter(name)
        return lambda wildcards: value(RunResources(self.run(wildcards)))

    def _memory(self, wildcards: Wildcards, attempt: int) -> int:
        """Return the memory in MB, increased if earlier attempts ran out of memory.

        `attempt` is the number of Snakemake's attempt, from 1.
        """
        run = self.run(wildcards)
        # Before a retry, Snakemake knows that the job has ended. At the first attempt, a lease may belong to
        # a job that an earlier Snakemake left running.
        before = all_attempts(self.state(wildcards), run.parallel.ranks, ended=attempt > 1)
        return memory_for_next_attempt(RunResources(run).memory_mb, before)
