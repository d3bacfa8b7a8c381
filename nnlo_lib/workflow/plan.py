"""Plan of an experiment for the workflow: its jobs, its data sets and the resources of each job."""

import atexit
import json
import re
import shlex
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from nnlo_lib.config import Experiment, JobSpec, Run
from nnlo_lib.config.data import DataConfig
from nnlo_lib.config.paths import ExperimentPaths, RunPaths, manifest_of, store_name
from nnlo_lib.config.resources import RunResources
from nnlo_lib.core.atomic_file import atomic_write
from nnlo_lib.core.errors import UserError
from nnlo_lib.data.catalog import CATALOG
from nnlo_lib.state.lease import Lease
from nnlo_lib.state.longer_training import refuse_fewer_epochs
from nnlo_lib.workflow.rule_resources import RuleResources, Wildcards, site_resources_of

BEST_RUN = "best"  # the run that retrains the best trial of a search


@dataclass(frozen=True)
class Plan:
    """Source of the wildcards, parameters and resources of the workflow's rules."""

    experiment: Experiment
    runs: dict[str, Run]
    stores: dict[str, DataConfig]

    @classmethod
    def of(cls, experiment: Experiment) -> "Plan":
        """Return the plan of an experiment."""
        only_search = experiment.search is not None and not experiment.runs
        runs = {} if only_search else experiment.variants
        # With a search, the experiment itself is the base run of the trials, so its data are needed, too.
        trained = [experiment, *runs.values()] if experiment.search else runs.values()
        return cls(experiment, runs, {store_name(run.data): run.data for run in trained})

    @cached_property
    def jobs(self) -> list[JobSpec]:
        """Jobs of the runs, without the jobs of a search."""
        return [job for job in self.experiment.jobs() if job.run in self.runs]

    @property
    def folders(self) -> list[str]:
        """Folders of all evaluated jobs below the experiment's folder, including a search's best run."""
        best = [JobSpec(run=BEST_RUN, seed=seed) for seed in self.experiment.seeds if self.experiment.search]
        return [job.path for job in [*self.jobs, *best]]

    @cached_property
    def job_pattern(self) -> str:
        """Regular expression of a job's folder below its run's folder."""
        return r"seed-\d+" if self.experiment.folds == 1 else r"seed-\d+/fold-\d+"

    @property
    def parallel_runs(self) -> list[str]:
        """Names of the runs with several processes."""
        return [name for name, run in self.runs.items() if RunResources(run).processes > 1]

    @property
    def single_runs(self) -> list[str]:
        """Names of the runs with one process."""
        return [name for name, run in self.runs.items() if RunResources(run).processes == 1]

    def run(self, name: str) -> Run:
        """Return the run `name`. Raises UserError if the experiment has a search and no run `name`."""
        if self.experiment.search and name not in self.runs:
            raise UserError(
                "the experiment has a `search:` section and no `runs:`; run it with `nnlo search FILE`"
            )
        return self.runs[name]

    @property
    def training_resources(self) -> RuleResources:
        """Resources of the jobs of the training rules."""
        return RuleResources(
            lambda wildcards: self.run(wildcards.run),
            self._state,
            site_resources_of(list(self.runs.values())),
        )

    def _state(self, wildcards: Wildcards) -> Path:
        folder = ExperimentPaths(self.experiment.name).run_folder(wildcards.run)
        return RunPaths(folder / wildcards.job).state.folder

    def refuse_fewer_epochs(self) -> None:
        """Raise UserError if a job has finished with more epochs than its run now has."""
        for job in self.jobs:
            refuse_fewer_epochs(ExperimentPaths(self.experiment.name).job(job).folder, self.runs[job.run])

    def manifest(self, name: str) -> str:
        """Return the path of the manifest of a run's data."""
        return manifest_of(self.runs[name])

    def input_files(self, name: str) -> list[str]:
        """Return the user's files that a run depends on."""
        return list(self.runs[name].input_files)

    def fetch_options(self, dataset: str) -> str:
        """Return the command-line options for the source of a data set."""
        data = self._data(dataset)
        return " ".join(
            (["--source", shlex.quote(data.source)] if data.source else []) + _reader_option(data)
        )

    def convert_options(self, dataset: str, file_format: str) -> str:
        """Return the command-line options for the store of a data set."""
        data = self.stores[f"{dataset}/{file_format}"]
        return " ".join(["--shard-size", str(data.samples_per_shard), *_reader_option(data)])

    @cached_property
    def shards(self) -> dict[str, list[str]]:
        """Shards of each data set that separate jobs convert: TFRecord files; empty for other readers.

        Raises UserError if a folder of TFRecords is missing or incomplete.
        """
        return {data.dataset: _shards(data) for data in self.stores.values()}

    def _data(self, dataset: str) -> DataConfig:
        return next(data for data in self.stores.values() if data.dataset == dataset)

    def resolved_config(self, name: str) -> str:
        """Return a run's complete configuration as JSON, for config.json beside its results."""
        settings = {
            "experiment": self.experiment.name,
            "name": name,
            "folds": self.experiment.folds,
            "run": self.runs[name].model_dump(mode="json"),
        }
        return json.dumps(settings, indent=1)

    def result_settings(self, name: str) -> str:
        """Return the settings of a run whose edit trains the run again."""
        return json.dumps([self.experiment.folds, self.runs[name].result_settings])

    def lease_experiment(self) -> None:
        """Refuse another Snakemake of this experiment until this process ends. Raises UserError if one is running."""
        lease = Lease(ExperimentPaths(self.experiment.name).workflow_state.folder)
        lease.acquire(False, lambda: False)
        atexit.register(lease.release)

    def write_configs(self) -> None:
        """Write config.json of each run."""
        for name in self.runs:
            with atomic_write(ExperimentPaths(self.experiment.name).run_config(name)) as part:
                part.write_text(self.resolved_config(name))

    def job_options(self, job: str) -> str:
        """Turn `seed-1/fold-2` into `--seed 1 --fold 2`."""
        return " ".join(f"--{kind} {number}" for kind, number in re.findall(r"(seed|fold)-(\d+)", job))


def reader_of(data: DataConfig) -> str:
    """Return the name of a data set's reader."""
    return data.reader.name if data.reader else CATALOG[data.dataset].reader


def reader_json(data: DataConfig) -> str | None:
    """Return the reader's settings as JSON for the scripts, or None if `data.reader` is not set."""
    return data.reader.model_dump_json() if data.reader else None


def _shards(data: DataConfig) -> list[str]:
    if reader_of(data) != "tfrecord":
        return []
    folder = Path(data.source or "").expanduser()
    if data.source is None or not folder.is_dir():
        raise UserError(
            f"data.source: must be the folder with the TFRecord files of {data.dataset}, not {data.source}"
        )
    from nnlo_lib.data.readers.tfrecord import list_shards

    return list_shards(folder)


def _reader_option(data: DataConfig) -> list[str]:
    settings = reader_json(data)
    return ["--reader", shlex.quote(settings)] if settings else []
