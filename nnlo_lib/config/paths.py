"""Names of the files and folders of runs and searches; other modules do not repeat them."""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, overload

from nnlo_lib.config.run import JobSpec, Run

if TYPE_CHECKING:
    from nnlo_lib.data.store_location import StoreLocation

RESULTS_FOLDER = Path("results")
LOGS_FOLDER = Path("logs")
SLURM_LOGS_FOLDER = Path(".snakemake/slurm_logs")  # of Snakemake's Slurm plugin: <rule>/<wildcards>/<job>.log
SUBMITTED_JOBS_FOLDER = Path(".snakemake/nnlo_jobs")  # see cluster/job_watch.py
SEARCH_FOLDER = "search"  # sibling of the folders of runs
BEST_RUN = "best"  # the run that retrains the best trial of a search
TRAINING_FOLDER_NAME = re.compile(r"(seed|fold)-\d+")
NO_TRAININGS = ("former", "state", "code", "submitit")  # names of folders without trainings below
LOGS_OF_EXPERIMENT = "aggregate.log", "report.log"  # below logs/<experiment>/, beside the folders of runs


class HasFolder(Protocol):
    """Protocol of objects that name files below a folder."""

    @property
    def folder(self) -> Path:
        """The folder."""
        ...


class PathBelow:
    """Descriptor of a fixed file name: on an instance, the path below its `folder`; on the class, the descriptor."""

    def __init__(self, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, owner: None, kind: type) -> "PathBelow": ...
    @overload
    def __get__(self, owner: HasFolder, kind: type) -> Path: ...
    def __get__(self, owner: HasFolder | None, kind: type) -> "PathBelow | Path":
        return self if owner is None else owner.folder / self.name


@dataclass(frozen=True)
class StatePaths:
    """Files in `folder`, state/ of a training, which are kept after a failed attempt and are no outputs of Snakemake."""

    folder: Path

    attempts = PathBelow("attempts.jsonl")
    lease = PathBelow("lease.json")
    log = PathBelow("log.txt")
    step = PathBelow("step")
    reserve = PathBelow("reserve")
    partition = PathBelow("partition.npz")
    normalization = PathBelow("normalization.json")
    history = PathBelow("history.jsonl")
    nodes = PathBelow("nodes.jsonl")
    ledger = PathBelow("ledger.jsonl")
    validations = PathBelow("validations.jsonl")
    checkpoints = PathBelow("checkpoints")
    dropped = PathBelow("dropped")
    rungs = PathBelow("rungs")
    ranks = PathBelow("ranks")
    failures = PathBelow("failures")
    stopped = PathBelow("stopped")
    done = PathBelow("done")
    observed = PathBelow("observed")
    input_files = PathBelow("input_files.json")
    code = PathBelow("code")

    @property
    def rank_status(self) -> tuple[Path, ...]:
        """Folders of the files that the ranks of one attempt write for their launcher."""
        return self.ranks, self.failures, self.stopped, self.done

    @property
    def resumable(self) -> tuple[Path, ...]:
        """Files and folders from which an unfinished training can resume."""
        tables = self.history, self.nodes, self.ledger, self.validations
        return *tables, self.checkpoints, self.input_files, self.code

    @property
    def next_archive(self) -> Path:
        """Next unused folder for the state of an earlier training with other settings."""
        return _next_archive(self.folder)


@dataclass(frozen=True)
class RunPaths:
    """Files of one training in `folder`, results/<experiment>/<run>/<job>/: published outputs and `state/`."""

    folder: Path

    model = PathBelow("model.safetensors")
    partition = PathBelow("partition.npz")
    history = PathBelow("history.csv")
    nodes = PathBelow("nodes.csv")
    validations = PathBelow("validations.csv")
    consensus = PathBelow("consensus.npz")
    validation_metrics = PathBelow("validation_metrics.npz")
    maps = PathBelow("maps.npz")
    samples = PathBelow("samples.png")
    trace = PathBelow("trace.json")
    monitor = PathBelow("monitor.csv")
    log = PathBelow("log.txt")
    summary = PathBelow("summary.json")
    evaluation = PathBelow("evaluation.json")
    sample_metrics = PathBelow("sample_metrics.npz")
    predictions = PathBelow("predictions.npz")
    nnlo_history = PathBelow("nnlo_history.json")
    tensorboard = PathBelow("tensorboard")
    mlflow = PathBelow("mlflow.db")
    wandb = PathBelow("wandb")
    code = PathBelow("code")
    # This name and the names in SearchStatePaths come from earlier versions: files on disk are not renamed.
    trial_log = PathBelow("trial.log")

    @property
    def state(self) -> StatePaths:
        """Files that are kept after a failed attempt."""
        return StatePaths(self.folder / "state")

    @property
    def former(self) -> Path:
        """Folder with the results of other settings, of this training and of those beside it."""
        return self.folder.parent / "former"

    @property
    def workflow_logs(self) -> Path:
        """Folder in which Snakemake keeps the logs of the job: logs/<experiment>/<run>/<job>/ beside results/."""
        parts = self.folder.parts
        places = [number for number, part in enumerate(parts) if part == RESULTS_FOLDER.name]
        return Path(*parts[: places[-1]], LOGS_FOLDER, *parts[places[-1] + 1 :]) if places else self.folder

    @property
    def optional_outputs(self) -> tuple[Path, ...]:
        """Outputs that only some trainings have."""
        return self.nodes, self.validations, self.samples, self.nnlo_history

    @property
    def outputs(self) -> tuple[Path, ...]:
        """All outputs with a fixed name; the summary records their checksums."""
        fixed = self.model, self.partition, self.history
        observed = self.trace, self.log, self.monitor, self.consensus, self.validation_metrics, self.maps
        return *fixed, *self.optional_outputs, *observed


@dataclass(frozen=True)
class SearchStatePaths(StatePaths):
    """Files in `state/` of a search; the attributes `pool_*` belong to its MPI rank pool."""

    pool_utilization = PathBelow("blocks.jsonl")
    pool_failures = PathBelow("deaths.jsonl")
    pool_outcome = PathBelow("outcome.json")
    pool_stop = PathBelow("stop")
    pool_heartbeats = PathBelow("pulse")


@dataclass(frozen=True)
class SearchPaths:
    """Files of a search in `folder`, results/<experiment>/search/."""

    folder: Path

    config = PathBelow("config.json")
    settings = PathBelow("search.json")
    optuna = PathBelow("optuna.db")
    ended = PathBelow("ended.json")
    trials = PathBelow("trials")
    table = PathBelow("trials.csv")
    best = PathBelow("best.yaml")
    report = PathBelow("report.html")
    submitit = PathBelow("submitit")

    @classmethod
    def around(cls, fold: Path) -> "SearchPaths | None":
        """Return the search to which the folder `fold` belongs; None if it does not belong to a search."""
        trials = next((above for above in fold.absolute().parents if above.name == cls.trials.name), None)
        # A folder called trials can also be the user's own, outside of a search.
        return cls(trials.parent) if trials and trials.parent.name == SEARCH_FOLDER else None

    @property
    def next_archive(self) -> Path:
        """Next unused folder for trials with other settings, none of which has a result."""
        return _next_archive(self.folder)

    @property
    def state(self) -> SearchStatePaths:
        """Lease of the search and files of its MPI rank pool."""
        return SearchStatePaths(self.folder / "state")

    def trial(self, number: int) -> Path:
        """Return the file of a trial, with its parameters and the decisions about it."""
        return self.trials / f"{number:04d}.json"

    def fold(self, trial: int, fold: int) -> RunPaths:
        """Return the paths of the training of one fold of a trial."""
        return RunPaths(self.trials / f"{trial:04d}/fold-{fold}")

    def result(self, trial: int, fold: int, epochs: int) -> Path:
        """Return the result file of a fold task, which trains a fold to a number of epochs."""
        return self.fold(trial, fold).folder / f"epochs-{epochs}.json"

    def results(self) -> list[Path]:
        """Return all existing result files."""
        return [path for fold in self.trials.glob("*/fold-*") for path in self.results_in(fold)]

    @staticmethod
    def results_in(fold: Path) -> list[Path]:
        """Return the existing result files of the fold in the folder `fold`."""
        return sorted(fold.glob("epochs-*.json"))

    def job_tasks(self, trial: int, fold: int, epochs: int) -> Path:
        """Return the file with the fold tasks of a job of the DAG, of which this one is the last."""
        return self.fold(trial, fold).folder / f"tasks-{epochs}.json"

    def job_record(self, trial: int, fold: int, epochs: int) -> Path:
        """Return the file with the scheduler's job of a fold task."""
        return self.fold(trial, fold).folder / f"job-{epochs}.json"


def _next_archive(folder: Path) -> Path:
    """Return the next unused folder former-<n>, numbered from 1."""
    return folder / f"former-{1 + len(list(folder.glob('former-*')))}"


@dataclass(frozen=True)
class ExperimentPaths:
    """Files of the experiment `name`."""

    name: str

    summary = PathBelow("summary.csv")
    comparisons = PathBelow("comparisons.csv")
    page = PathBelow("report.html")
    planned = PathBelow(".workflow/planned.json")
    made_from = PathBelow(".workflow/page.json")
    owner = PathBelow(".workflow/experiment.json")

    @property
    def folder(self) -> Path:
        """The folder results/<experiment>/, relative to the working directory."""
        return RESULTS_FOLDER / self.name

    @property
    def workflow_state(self) -> StatePaths:
        """Files of the Snakemake that runs the experiment; hidden, because a run may have any other name."""
        return StatePaths(self.folder / ".workflow")

    @property
    def search(self) -> SearchPaths:
        """Paths of the search of the experiment."""
        return SearchPaths(self.folder / SEARCH_FOLDER)

    @classmethod
    def reserved_names(cls, has_search: bool) -> set[str]:
        """Return the names that no run can have, because a file or folder of the experiment has them."""
        files = cls.summary.name, cls.comparisons.name, cls.page.name, *LOGS_OF_EXPERIMENT
        # Without a search, a run that repeats the best run of an earlier search may have its name.
        return {*files, SEARCH_FOLDER, *([BEST_RUN] if has_search else [])}

    def run_folder(self, run: str) -> Path:
        """Return the folder of all jobs of a run."""
        return self.folder / run

    def run_folders(self) -> list[Path]:
        """Return the folders of runs: everything in the experiment's folder except the search."""
        return [path for path in sorted(self.folder.glob("*")) if path.name != SEARCH_FOLDER]

    def run_config(self, run: str) -> Path:
        """Return the file with the resolved configuration of a run."""
        return self.run_folder(run) / SearchPaths.config.name

    def job(self, job: JobSpec) -> RunPaths:
        """Return the paths of the training of a job."""
        return RunPaths(self.folder / job.path)


def store_of(run: Run, leads: bool = False) -> "StoreLocation":
    """Return the location of the store of a run's data.

    Args:
        leads: see `locate_store`; jobs use the location that the process which started them has recorded.
    """
    # Imported here, because reading an experiment must not import h5py and numpy.
    from nnlo_lib.data.store_location import locate_store

    return locate_store(run.data.store_settings, leads)


def training_folders(folder: Path) -> Iterator[Path]:
    """Yield the folders of trainings, of which some file exists, in a folder or below."""
    with os.scandir(folder) as entries:
        below = [
            entry.name
            for entry in entries
            if not entry.name.startswith(".") and entry.name not in NO_TRAININGS and entry.is_dir()
        ]
    is_training = TRAINING_FOLDER_NAME.fullmatch(folder.name) and not any(
        TRAINING_FOLDER_NAME.fullmatch(name) for name in below
    )
    if is_training:
        yield folder
    else:
        for name in below:
            yield from training_folders(folder / name)
