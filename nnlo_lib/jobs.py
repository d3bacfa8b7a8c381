"""What the workflow asks about an experiment: its jobs, its data sets, what each job needs."""

import json
import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from nnlo_lib.config import Data, Experiment, Job, Run

SITE_RESOURCES: dict[str, Callable[[Run], int | str]] = {
    "slurm_partition": lambda run: run.resources.partition or "",
    "slurm_account": lambda run: run.resources.account or "",
    "lsf_queue": lambda run: run.resources.partition or "",
    "lsf_project": lambda run: run.resources.account or "",
    "gpu": lambda run: run.parallel.gpus_per_rank * run.parallel.ranks,
    "tasks_per_gpu": lambda run: run.parallel.gpus_per_rank,  # else the plugin starts ranks anew for each GPU
}


@dataclass(frozen=True)
class Plan:
    """The answers that the rules take their wildcards, parameters and resources from."""

    experiment: Experiment
    runs: dict[str, Run]
    stores: dict[str, Data]

    @classmethod
    def of(cls, experiment: Experiment) -> "Plan":
        """Plan an experiment."""
        runs = experiment.variants
        return cls(experiment, runs, {_store(run.data): run.data for run in runs.values()})

    @cached_property
    def jobs(self) -> list[Job]:
        """Every training."""
        return list(self.experiment.jobs())

    @cached_property
    def job_pattern(self) -> str:
        """Regular expression of a job's folder below its run."""
        return r"seed-\d+" if self.experiment.folds == 1 else r"seed-\d+/fold-\d+"

    @property
    def parallel_runs(self) -> list[str]:
        """Runs that start several processes."""
        return [name for name, run in self.runs.items() if _processes(run) > 1]

    @property
    def single_runs(self) -> list[str]:
        """Runs of one process."""
        return [name for name, run in self.runs.items() if _processes(run) == 1]

    def run(self, name: str) -> Run:
        """Return the run called `name`."""
        return self.runs[name]

    def threads(self, name: str) -> int:
        """Return the cores that a training keeps busy."""
        return _processes(self.runs[name]) * self.runs[name].parallel.threads_per_rank

    @property
    def site_resources(self) -> dict[str, Callable[[Any], int | str]]:
        """Return what some run asks of the site, as functions of the wildcards; the rest is left to the profile."""
        return {
            name: self._of_run(wish)
            for name, wish in SITE_RESOURCES.items()
            if any(wish(run) for run in self.runs.values())
        }

    def _of_run(self, wish: Callable[[Run], int | str]) -> Callable[[Any], int | str]:
        return lambda wildcards: wish(self.runs[wildcards.run])

    def manifest(self, name: str) -> str:
        """Return the manifest of a run's data."""
        return f"data/{_store(self.runs[name].data)}/manifest.json"

    def source(self, dataset: str) -> str:
        """Return the option that says where a data set comes from."""
        source = next(data.source for data in self.stores.values() if data.dataset == dataset)
        return f"--source {shlex.quote(source)}" if source else ""

    def shard_size(self, dataset: str, file_format: str) -> int:
        """Return the samples per shard of a store."""
        return self.stores[f"{dataset}/{file_format}"].shard_size

    def resolved(self, name: str) -> str:
        """Return a run's complete configuration as JSON, for config.json beside its results."""
        settings = {
            "experiment": self.experiment.name,
            "name": name,
            "folds": self.experiment.folds,
            "run": self.runs[name].model_dump(mode="json"),
        }
        return json.dumps(settings, indent=1)

    def job_options(self, job: str) -> str:
        """Turn `seed-1/fold-2` into `--seed 1 --fold 2`."""
        return " ".join(f"--{kind} {number}" for kind, number in re.findall(r"(seed|fold)-(\d+)", job))


def _store(data: Data) -> str:
    return f"{data.dataset}/{data.format}"


def _processes(run: Run) -> int:
    return run.parallel.ranks if run.parallel.transport == "mpi" else 1
