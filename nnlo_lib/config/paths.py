"""Names of files and folders that a run reads and writes, each spelled once."""

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, overload

from nnlo_lib.config.data import DataConfig
from nnlo_lib.config.run import JobSpec, Run

SEARCH_FOLDER = "search"  # beside the folders of runs


class HasFolder(Protocol):
    """Anything below which files are named."""

    @property
    def folder(self) -> Path:
        """The folder."""
        ...


class PathBelow:
    """A property of fixed name: the path of that name below the owner's folder; on the class, the name itself."""

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
    """`state/` of a training: what survives a failed attempt. Snakemake does not know these files."""

    folder: Path

    attempts = PathBelow("attempts.jsonl")
    lease = PathBelow("lease.json")
    log = PathBelow("log.txt")
    step = PathBelow("step")
    partition = PathBelow("partition.npz")
    history = PathBelow("history.jsonl")
    nodes = PathBelow("nodes.jsonl")
    ledger = PathBelow("ledger.jsonl")
    validations = PathBelow("validations.jsonl")
    checkpoints = PathBelow("checkpoints")
    ranks = PathBelow("ranks")
    failures = PathBelow("failures")
    stopped = PathBelow("stopped")
    observed = PathBelow("observed")

    @property
    def rank_status(self) -> tuple[Path, Path, Path]:
        """Folders of what the ranks of one attempt write for their launcher."""
        return self.ranks, self.failures, self.stopped

    @property
    def resumable(self) -> tuple[Path, ...]:
        """What an unfinished training could be resumed from."""
        return self.history, self.nodes, self.ledger, self.validations, self.checkpoints

    @property
    def next_archive(self) -> Path:
        """Folder for what an earlier, different training left; numbered from 1."""
        return self.folder / f"former-{1 + len(list(self.folder.glob('former-*')))}"


@dataclass(frozen=True)
class RunPaths:
    """The folder of one training, results/<experiment>/<run>/<job>/: its published outputs, and `state/`."""

    folder: Path

    model = PathBelow("model.safetensors")
    partition = PathBelow("partition.npz")
    history = PathBelow("history.csv")
    nodes = PathBelow("nodes.csv")
    validations = PathBelow("validations.csv")
    samples = PathBelow("samples.png")
    trace = PathBelow("trace.json")
    monitor = PathBelow("monitor.csv")
    log = PathBelow("log.txt")
    summary = PathBelow("summary.json")
    evaluation = PathBelow("evaluation.json")
    tensorboard = PathBelow("tensorboard")
    chaos_log = PathBelow("said.txt")
    trial_log = PathBelow("trial.log")

    @property
    def state(self) -> StatePaths:
        """What survives a failed attempt."""
        return StatePaths(self.folder / "state")

    @property
    def optional_outputs(self) -> tuple[Path, Path, Path]:
        """Outputs that only some trainings have."""
        return self.nodes, self.validations, self.samples

    @property
    def outputs(self) -> tuple[Path, ...]:
        """All outputs of fixed name whose checksums the summary records."""
        fixed = self.model, self.partition, self.history
        return *fixed, *self.optional_outputs, self.trace, self.log, self.monitor


@dataclass(frozen=True)
class SearchStatePaths(StatePaths):
    """`state/` of a search; the last five belong to its MPI pool."""

    pool_utilization = PathBelow("blocks.jsonl")
    pool_failures = PathBelow("deaths.jsonl")
    pool_outcome = PathBelow("outcome.json")
    pool_stop = PathBelow("stop")
    pool_heartbeats = PathBelow("pulse")


@dataclass(frozen=True)
class SearchPaths:
    """The folder of a search, results/<experiment>/search/."""

    folder: Path

    config = PathBelow("config.json")
    settings = PathBelow("search.json")
    ended = PathBelow("ended.json")
    trials = PathBelow("trials")
    table = PathBelow("trials.csv")
    best = PathBelow("best.yaml")
    report = PathBelow("report.html")
    submitit = PathBelow("submitit")

    @classmethod
    def around(cls, fold: Path) -> "SearchPaths | None":
        """Return the search that trains in the folder of a trial's fold, or None if the folder is no search's."""
        trials = next((above for above in fold.absolute().parents if above.name == cls.trials.name), None)
        return cls(trials.parent) if trials and trials.parent.name == SEARCH_FOLDER else None

    @property
    def state(self) -> SearchStatePaths:
        """Lease of the search and files of its MPI pool."""
        return SearchStatePaths(self.folder / "state")

    def trial(self, number: int) -> Path:
        """Return the file of a trial: its point and the decisions on it."""
        return self.trials / f"{number:04d}.json"

    def fold(self, trial: int, fold: int) -> RunPaths:
        """Return the training of one fold of a trial."""
        return RunPaths(self.trials / f"{trial:04d}/fold-{fold}")

    def result(self, trial: int, fold: int, epochs: int) -> Path:
        """Return the file of what training a fold up to an epoch came to."""
        return self.fold(trial, fold).folder / f"epochs-{epochs}.json"

    def results(self) -> list[Path]:
        """Return all files of results that exist."""
        return [path for fold in self.trials.glob("*/fold-*") for path in self.results_in(fold)]

    @staticmethod
    def results_in(fold: Path) -> list[Path]:
        """Return the files of results of one fold that exist."""
        return sorted(fold.glob("epochs-*.json"))

    def job_record(self, trial: int, fold: int, epochs: int) -> Path:
        """Return the file that names the scheduler's job of a fold."""
        return self.fold(trial, fold).folder / f"job-{epochs}.json"


@dataclass(frozen=True)
class ExperimentPaths:
    """The folder of an experiment, results/<experiment>/."""

    name: str

    @property
    def folder(self) -> Path:
        """The folder, below the working directory."""
        return Path("results", self.name)

    @property
    def search(self) -> SearchPaths:
        """The experiment's search."""
        return SearchPaths(self.folder / SEARCH_FOLDER)

    def run_folder(self, run: str) -> Path:
        """Return the folder of all jobs of a run."""
        return self.folder / run

    def run_folders(self) -> list[Path]:
        """Return what is below the experiment's folder, apart from the search: the folders of runs."""
        return [path for path in sorted(self.folder.glob("*")) if path.name != SEARCH_FOLDER]

    def run_config(self, run: str) -> Path:
        """Return the file of a run's resolved configuration."""
        return self.run_folder(run) / SearchPaths.config.name

    def job(self, job: JobSpec) -> RunPaths:
        """Return the training of a job."""
        return RunPaths(self.folder / job.path)


def manifest_of(run: Run) -> str:
    """Return the manifest of a run's data."""
    return f"data/{store_name(run.data)}/manifest.json"


def store_name(data: DataConfig) -> str:
    """Return the folder of a data set's store below data/."""
    return f"{data.dataset}/{data.format}"
