"""Plan of an experiment for the workflow: jobs, data sets, and the parameters, wildcards and resources of Snakemake's rules."""

import atexit
import json
import re
import shlex
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from operator import attrgetter
from pathlib import Path
from typing import Any

from nnlo_lib.config import Experiment, JobSpec, Run
from nnlo_lib.config.experiment import RunResources
from nnlo_lib.config.paths import BEST_RUN, ExperimentPaths, RunPaths
from nnlo_lib.core.atomic_file import atomic_write, write_settings
from nnlo_lib.core.errors import UserError
from nnlo_lib.core.file_access import refuse_unwritable
from nnlo_lib.core.secrets import conceal
from nnlo_lib.core.text_format import plural
from nnlo_lib.data.fetch.record import FETCH_RECORD_FILE
from nnlo_lib.data.store_location import DATA_FOLDER, StoreLocation, locate_store
from nnlo_lib.data.store_settings import StoreSettings
from nnlo_lib.launch.attempt_recovery import all_attempts
from nnlo_lib.search.space.space import count_trials
from nnlo_lib.state.attempt_outcome import memory_for_next_attempt
from nnlo_lib.state.attempts import begin_session
from nnlo_lib.state.lease import Lease
from nnlo_lib.train.task import Task

Wildcards = Any
SITE_RESOURCES = tuple(RunResources(Run()).site)


def _site_resource(name: str, resources: RunResources) -> int | str:
    return resources.site[name]


def site_resources_of(runs: Sequence[Run]) -> tuple[str, ...]:
    """Return the names of the site resources that at least one run sets; the profile sets the others."""
    requested = [RunResources(run).site for run in runs]
    return tuple(name for name in SITE_RESOURCES if any(site[name] for site in requested))


@dataclass(frozen=True)
class RuleResources:
    """The `threads` and `resources` of a rule that trains."""

    run: Callable[[Wildcards], Run]  # raises FileNotFoundError if the run of a job is not known yet
    states: Callable[[Wildcards], list[Path]]  # state folders of the trainings of a job
    site_names: tuple[str, ...]  # of the site resources that the rule sets

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
            **{name: self._of_run(partial(_site_resource, name)) for name in self.site_names},
            "tasks": self._of_run(attrgetter("processes")),
            "nodes": self._of_run(attrgetter("nodes")),
            "cpus_per_task": self._of_run(attrgetter("threads_per_process")),
            "runtime": self._of_run(attrgetter("runtime_min")),
            "mem_mb": lambda wildcards, attempt: self._memory(wildcards, attempt),
            "attempt": lambda wildcards, attempt: attempt,
        }

    def _of_run(self, value: Callable[[RunResources], int | str]) -> Callable[[Wildcards], int | str]:
        return lambda wildcards: value(RunResources(self.run(wildcards)))

    def _memory(self, wildcards: Wildcards, attempt: int) -> int:
        """Return the memory in MB, increased if attempts before Snakemake's `attempt`, from 1, ran out of memory."""
        run = self.run(wildcards)
        # Before a retry, Snakemake knows that the job has ended. At the first attempt, a lease may belong to
        # a job that an earlier Snakemake left running.
        before = (
            all_attempts(each, run.parallel.ranks, ended=attempt > 1) for each in self.states(wildcards)
        )
        return max(memory_for_next_attempt(RunResources(run).memory_mb, each) for each in before)


@dataclass(frozen=True)
class Plan:
    """Source of the wildcards, parameters and resources of the workflow's rules."""

    experiment: Experiment
    runs: dict[str, Run]
    leads: bool = True

    @classmethod
    def of(cls, experiment: Experiment, leads: bool = True) -> "Plan":
        """Return the plan of an experiment; `leads` is False in jobs of a workflow, see `locate_store`."""
        only_search = experiment.search is not None and not experiment.runs
        return cls(experiment, {} if only_search else experiment.variants, leads)

    @cached_property
    def stores(self) -> dict[str, StoreLocation]:
        """Locations of all stores, by data set and folder such as `digits/hdf5-0123456789ab`."""
        # With a search, the experiment itself is the base run of the trials, so its data are needed, too.
        trained = [self.experiment, *self.runs.values()] if self.experiment.search else self.runs.values()
        settings = [run.data.store_settings for run in trained]
        located = {store.hash: locate_store(store, self.leads) for store in settings}
        return {f"{store.settings.dataset}/{store.folder.name}": store for store in located.values()}

    @cached_property
    def jobs(self) -> list[JobSpec]:
        """Jobs of the runs, without the jobs of a search."""
        return [job for job in self.experiment.jobs() if job.run in self.runs]

    @property
    def evaluated_jobs(self) -> list[JobSpec]:
        """All evaluated jobs, including the jobs of a search's best run."""
        best = [JobSpec(run=BEST_RUN, seed=seed) for seed in self.experiment.seeds if self.experiment.search]
        return [*self.jobs, *best]

    @property
    def folders(self) -> list[str]:
        """Folders of all evaluated jobs below the experiment's folder."""
        return [job.path for job in self.evaluated_jobs]

    @cached_property
    def job_pattern(self) -> str:
        """Regular expression of a job's folder below its run's folder."""
        return r"seed-\d+" if self.experiment.folds == 1 else r"seed-\d+/fold-\d+"

    def launcher(self, name: str) -> str:
        """Return the launcher of a run's ranks where no profile sets one; empty for one process, which starts directly."""
        return "mpiexec" if RunResources(self.run(name)).processes > 1 else ""

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
        paths = ExperimentPaths(self.experiment.name)
        return RuleResources(
            lambda wildcards: self.run(wildcards.run),
            lambda wildcards: [RunPaths(paths.run_folder(wildcards.run) / wildcards.job).state.folder],
            site_resources_of(list(self.runs.values())),
        )

    @property
    def manifests(self) -> list[str]:
        """Paths of the manifests of all stores."""
        return [str(store.manifest) for store in self.stores.values()]

    @property
    def base_manifest(self) -> str:
        """Path of the manifest of the data of a search's trials."""
        return str(self._store_of(self.experiment).manifest)

    def task(self, job: JobSpec, title: str = "") -> Task:
        """Return the task of a job of a run; `title` is the folder below results/, by default the experiment's name."""
        title = title or self.experiment.name
        return Task(
            title, job.run, self.run(job.run), job.seed, job.fold, self.experiment.folds, self.store(job.run).manifest,
            ExperimentPaths(title).job(job).folder,
        )  # fmt: skip

    def manifest(self, name: str) -> str:
        """Return the path of the manifest of a run's data."""
        return str(self.store(name).manifest)

    def store(self, name: str) -> StoreLocation:
        """Return the location of the store of a run's data."""
        return self._run_stores.get(name) or self._store_of(self.run(name))

    @cached_property
    def _run_stores(self) -> dict[str, StoreLocation]:
        return {name: self._store_of(run) for name, run in self.runs.items()}

    def _store_of(self, run: Run) -> StoreLocation:
        wanted = run.data.store_settings.hash
        return next(store for store in self.stores.values() if store.settings.hash == wanted)

    def input_files(self, name: str) -> list[str]:
        """Return the user's files that a run depends on."""
        return self._input_files[name]

    @property
    def all_input_files(self) -> list[str]:
        """The user's files that any run depends on."""
        return [file for files in self._input_files.values() for file in files]

    @cached_property
    def _input_files(self) -> dict[str, list[str]]:
        # Snakemake asks for each job, and the imports of the code are read from its source.
        return {name: list(run.input_files) for name, run in self.runs.items()}

    def fetch_options(self, dataset: str, raw: str) -> str:
        """Return the command-line options for the source of the files in `raw` of a data set.

        The options of this class are one string, quoted for a shell. As lists, they would differ from the parameters
        that Snakemake has recorded, and it would repeat the jobs of existing results.
        """
        settings = next(
            store.settings for store in self.stores.values() if store.raw == DATA_FOLDER / dataset / raw
        )
        source = ["--source", conceal(settings.source)] if settings.source else []
        return shlex.join([*source, *_reader_option(settings)])

    def raw_record(self, name: str) -> str:
        """Return the path of the record of the fetched files of a store."""
        return str(self.stores[name].raw / FETCH_RECORD_FILE)

    def convert_options(self, name: str) -> str:
        """Return the command-line options for a store."""
        store = self.stores[name]
        options = ["--raw", str(store.raw), "--target", str(store.folder), "--format", store.settings.format]
        options += ["--shard-size", str(store.settings.shard_size), *_reader_option(store.settings)]
        return shlex.join([*options, "--key", store.key])

    @cached_property
    def shards(self) -> dict[str, list[str]]:
        """Shards of each store that separate jobs convert: TFRecord files; empty for other readers.

        Raises UserError if a folder of TFRecords is missing or incomplete.
        """
        return {name: _shards(store.settings) for name, store in self.stores.items()}

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
        return self._result_settings[name]

    @cached_property
    def _result_settings(self) -> dict[str, str]:
        # Snakemake asks for each job.
        folds = self.experiment.folds
        return {name: json.dumps([folds, run.result_settings]) for name, run in self.runs.items()}

    def lease_experiment(self) -> None:
        """Refuse another Snakemake of this experiment until this process ends. Raises UserError if one is running."""
        lease = Lease(ExperimentPaths(self.experiment.name).workflow_state.folder)
        lease.acquire(False, lambda: False)
        atexit.register(lease.release)
        begin_session()

    def refuse_unwritable(self) -> None:
        """Raise UserError, before anything is written, for files of another user in the folders of the experiment."""
        name = self.experiment.name
        refuse_unwritable(ExperimentPaths(name).folder, Path("logs", name))
        for store in self.stores.values():
            if not store.manifest.exists():  # a colleague's complete store is only read
                is_fetched = (store.raw / FETCH_RECORD_FILE).exists()
                refuse_unwritable(store.folder, *([] if is_fetched else [store.raw]))

    def write_configs(self) -> None:
        """Write config.json of each run, and the folders of all jobs for `nnlo watch`."""
        for name in self.runs:
            write_settings(ExperimentPaths(self.experiment.name).run_config(name), self.resolved_config(name))
        with atomic_write(ExperimentPaths(self.experiment.name).planned) as part:
            part.write_text(json.dumps(self.folders, indent=1))

    def job(self, run: str, job: str) -> JobSpec:
        """Return the job of a run in the folder `job`, such as `seed-1/fold-2`."""
        numbers = {kind: int(number) for kind, number in re.findall(r"(seed|fold)-(\d+)", job)}
        return JobSpec(run=run, **numbers)

    def job_options(self, job: str) -> str:
        """Turn `seed-1/fold-2` into `--seed 1 --fold 2`."""
        return " ".join(f"--{kind} {number}" for kind, number in re.findall(r"(seed|fold)-(\d+)", job))


def _shards(settings: StoreSettings) -> list[str]:
    if settings.spec.reader != "tfrecord":
        return []
    folder = Path(settings.source or "").expanduser()
    if not folder.is_dir():
        raise UserError(
            f"data.source: must be the folder with the TFRecord files of {settings.dataset}, not {settings.source}"
        )
    from nnlo_lib.data.source_identity import read_contents

    return [unit.name for unit in read_contents(settings, folder).units]


def _reader_option(settings: StoreSettings) -> list[str]:
    return ["--reader", conceal(json.dumps(dict(settings.reader)))] if settings.reader else []


def summarize_plan(experiment: Experiment) -> str:
    """Return a phrase that lists the experiment's search, trainings and conversions."""
    plan = Plan.of(experiment)
    parts = []
    if search := experiment.search:
        folds = f" of {search.folds.k} folds" if search.folds.k > 1 else ""
        method = ", ".join(
            [search.method.name, *([] if search.fidelity.name == "full" else [search.fidelity.name])]
        )
        trials = plural(count_trials(search), "trial")
        parts.append(f"a search ({method}) of {trials}{folds} over {', '.join(search.space)}")
    if plan.jobs:
        runs = (
            f"{name} ({run.algorithm.name}, {plural(run.parallel.ranks, 'rank')})"
            for name, run in plan.runs.items()
        )
        parts.append(f"{plural(len(plan.jobs), 'training')} of {', '.join(runs)}")
    shards = sum(map(len, plan.shards.values()))
    conversions = f", after the conversion of {plural(shards, 'shard')}" if shards else ""
    return f"{'; '.join(parts)}{conversions}"


def command_prefix(python_folder: Path | None) -> str:
    """Return the beginning of each shell command of the rules, which then use the Python interpreter in a folder, or conda's.

    On a cluster, a job's executor reads the exit status of the command, which the job itself does not have.
    """
    # Snakemake formats the command.
    folder = shlex.quote(str(python_folder)).replace("{", "{{").replace("}", "}}")
    path = f"export PATH={folder}:$PATH; " if python_folder else ""
    return (
        f"set -euo pipefail; {path}"
        "trap 'status=$?; echo $status > \"${{NNLO_COMMAND_STATUS_FILE:-/dev/null}}\"' EXIT; "
    )


def any_of(names: Iterable[str]) -> str:
    """Return the regular expression of a wildcard with these values; without values it matches nothing."""
    return "|".join(map(re.escape, names)) or "(?!)"


def refuse_braces(files: Iterable[str]) -> None:
    """Raise UserError for an input file with braces in its path.

    Snakemake replaces text in braces by the value of a wildcard, and cannot escape the braces of a path.
    """
    for file in files:
        if "{" in file:
            raise UserError(
                f"{file}: Snakemake takes text in braces for a wildcard; rename the file or its folder, or use `nnlo run`"
            )
