"""What the workflow asks about an experiment: its jobs, its data sets, what each job needs."""

import json
import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from nnlo_lib.config import Data, Experiment, Job, Run
from nnlo_lib.data.catalog import CATALOG
from nnlo_lib.errors import UserError
from nnlo_lib.launch.obituary import known
from nnlo_lib.state.retries import raised

SITE_RESOURCES: dict[str, Callable[[Run], int | str]] = {
    "slurm_partition": lambda run: run.resources.partition or "",
    "slurm_account": lambda run: run.resources.account or "",
    "lsf_queue": lambda run: run.resources.partition or "",
    "lsf_project": lambda run: run.resources.account or "",
    "gpu": lambda run: gpus(run),
    "tasks_per_gpu": lambda run: tasks_per_gpu(run),
}
BEST = "best"  # the run that a search ends with


@dataclass(frozen=True)
class Plan:
    """The answers that the rules take their wildcards, parameters and resources from."""

    experiment: Experiment
    runs: dict[str, Run]
    stores: dict[str, Data]

    @classmethod
    def of(cls, experiment: Experiment) -> "Plan":
        """Plan an experiment."""
        alone = experiment.search is not None and not experiment.runs  # then only what is searched is trained
        runs = {} if alone else experiment.variants
        trained = [experiment, *runs.values()] if experiment.search else runs.values()
        return cls(experiment, runs, {_store(run.data): run.data for run in trained})

    @cached_property
    def jobs(self) -> list[Job]:
        """Every training that is known before the search."""
        return [job for job in self.experiment.jobs() if job.run in self.runs]

    @property
    def folders(self) -> list[str]:
        """Folders of all trainings that are evaluated, below the experiment's; of a search, the best."""
        best = [Job(run=BEST, seed=seed) for seed in self.experiment.seeds if self.experiment.search]
        return [job.path for job in [*self.jobs, *best]]

    @cached_property
    def job_pattern(self) -> str:
        """Regular expression of a job's folder below its run."""
        return r"seed-\d+" if self.experiment.folds == 1 else r"seed-\d+/fold-\d+"

    @property
    def parallel_runs(self) -> list[str]:
        """Runs that start several processes."""
        return [name for name, run in self.runs.items() if processes(run) > 1]

    @property
    def single_runs(self) -> list[str]:
        """Runs of one process."""
        return [name for name, run in self.runs.items() if processes(run) == 1]

    def run(self, name: str) -> Run:
        """Return the run called `name`. Raises UserError where only what a search tries is trained."""
        if self.experiment.search and name not in self.runs:
            raise UserError("this experiment is a search, without `runs:`: nnlo search FILE")
        return self.runs[name]

    def threads(self, name: str) -> int:
        """Return the cores that a training keeps busy."""
        return processes(self.runs[name]) * self.runs[name].parallel.threads_per_rank

    @property
    def site_resources(self) -> dict[str, Callable[[Any], int | str]]:
        """Return what some run asks of the site, as functions of the wildcards; the rest is left to the profile."""
        return {
            name: self._of_run(wish)
            for name, wish in SITE_RESOURCES.items()
            if any(wish(run) for run in self.runs.values())
        }

    def memory(self, name: str, job: str, attempt: int) -> int:
        """Return the megabytes of a training: more than asked if it ran out of them; attempt: Snakemake's."""
        run = self.runs[name]
        state = Path("results", self.experiment.name, name, job, "state")
        return raised(run.resources.mem_mb, known(state, run.parallel.ranks, ended=attempt > 1))

    def _of_run(self, wish: Callable[[Run], int | str]) -> Callable[[Any], int | str]:
        return lambda wildcards: wish(self.runs[wildcards.run])

    def manifest(self, name: str) -> str:
        """Return the manifest of a run's data."""
        return manifest_of(self.runs[name])

    def model_files(self, name: str) -> list[str]:
        """Return the files that a run's layers and initial weights are read from."""
        return list(self.runs[name].model.contents)

    def fetch_options(self, dataset: str) -> str:
        """Return the options that say where a data set comes from."""
        data = self._data(dataset)
        return " ".join(
            (["--source", shlex.quote(data.source)] if data.source else []) + _reader_option(data)
        )

    def convert_options(self, dataset: str, file_format: str) -> str:
        """Return the options that say how a data set is stored."""
        data = self.stores[f"{dataset}/{file_format}"]
        return " ".join(["--shard-size", str(data.samples_per_shard), *_reader_option(data)])

    @cached_property
    def shards(self) -> dict[str, list[str]]:
        """The shards of each data set that jobs of their own convert: those of TFRecords; other data have none.

        Raises UserError if a folder of TFRecords is not there or not complete.
        """
        return {data.dataset: _shards(data) for data in self.stores.values()}

    def _data(self, dataset: str) -> Data:
        return next(data for data in self.stores.values() if data.dataset == dataset)

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


def manifest_of(run: Run) -> str:
    """Return the manifest of a run's data."""
    return f"data/{_store(run.data)}/manifest.json"


def reader_of(data: Data) -> str:
    """Return the name of the reader of a data set."""
    return data.reader.name if data.reader else CATALOG[data.dataset].reader


def reader_json(data: Data) -> str | None:
    """Return what the experiment says of the reader, as the scripts take it."""
    return data.reader.model_dump_json() if data.reader else None


def _shards(data: Data) -> list[str]:
    if reader_of(data) != "tfrecord":
        return []
    folder = Path(data.source or "").expanduser()
    if data.source is None or not folder.is_dir():
        raise UserError(
            f"data.source: must be the folder of the TFRecords of {data.dataset}, not {data.source}"
        )
    from nnlo_lib.data.readers.tfrecord import shards

    return shards(folder)


def _reader_option(data: Data) -> list[str]:
    told = reader_json(data)
    return ["--reader", shlex.quote(told)] if told else []


def _store(data: Data) -> str:
    return f"{data.dataset}/{data.format}"


def processes(run: Run) -> int:
    """Return how many processes a run starts."""
    return run.parallel.ranks if run.parallel.transport == "mpi" else 1


def gpus(run: Run) -> int:
    """Return how many GPUs a run asks for: one for every `ranks_per_gpu` of the ranks that have one."""
    parallel = run.parallel
    if not parallel.gpus_per_rank or parallel.transport == "simulated":
        return parallel.gpus_per_rank
    servers = 0 if parallel.master_gpu else getattr(run.algorithm, "masters", 0)
    return -(-(parallel.ranks - servers) // parallel.ranks_per_gpu)


def tasks_per_gpu(run: Run) -> int:
    """Return how many ranks Slurm ties to each GPU; 0 leaves it to the ranks, which share unequally.

    Snakemake's plugin must be told one of the two, or it starts ranks anew for each GPU.
    """
    each = run.parallel.ranks_per_gpu
    return each if each * gpus(run) == processes(run) else 0
