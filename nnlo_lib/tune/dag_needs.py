"""What trainings of a search ask of a scheduler, as Snakemake asks: functions of wildcards."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nnlo_lib.config import Experiment, Run
from nnlo_lib.jobs import SITE_RESOURCES, processes
from nnlo_lib.launch.obituary import known
from nnlo_lib.state.retries import raised

SITE_KEYS = ("parallel.gpus_per_rank", "resources.partition", "resources.account")
Wildcards = Any


@dataclass(frozen=True)
class Needs:
    """Of trainings that the wildcards tell apart. run: raises FileNotFoundError if it is not known yet; state: folder."""

    experiment: Experiment
    run: Callable[[Wildcards], Run]
    state: Callable[[Wildcards], Path]

    @property
    def threads(self) -> Callable[[Wildcards], int]:
        """Cores that a training keeps busy; 1 if it is not known yet, for Snakemake insists on a number."""

        def count(wildcards: Wildcards) -> int:
            try:
                run = self.run(wildcards)
            except FileNotFoundError:
                return 1
            return processes(run) * run.parallel.threads_per_rank

        return count

    @property
    def resources(self) -> dict[str, Any]:
        """All that is not the profile's."""
        return {
            **self._site,
            "tasks": self._of_run(processes),
            "nodes": self._of_run(lambda run: min(run.resources.nodes, processes(run))),
            "cpus_per_task": self._of_run(lambda run: run.parallel.threads_per_rank),
            "runtime": self._of_run(lambda run: run.resources.runtime),
            "mem_mb": lambda wildcards, attempt: self._memory(wildcards, attempt),
            "attempt": lambda wildcards, attempt: attempt,
        }

    @property
    def _site(self) -> dict[str, Any]:
        """What the base or some trial may ask of the site; the rest is left to the profile."""
        space = self.experiment.search.space if self.experiment.search else {}
        asked = any(key in space for key in SITE_KEYS)
        return {n: self._of_run(wish) for n, wish in SITE_RESOURCES.items() if asked or wish(self.experiment)}

    def _of_run(self, wish: Callable[[Run], int | str]) -> Callable[[Wildcards], int | str]:
        return lambda wildcards: wish(self.run(wildcards))

    def _memory(self, wildcards: Wildcards, attempt: int) -> int:
        """Return more than asked if it ran out of memory; attempt: Snakemake's."""
        run = self.run(wildcards)
        before = known(self.state(wildcards), run.parallel.ranks, ended=attempt > 1)
        return raised(run.resources.mem_mb, before)
