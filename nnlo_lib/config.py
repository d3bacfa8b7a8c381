"""The experiment file as typed, frozen models: every key, its default, its unit and its limits.

`nnlo_lib.experiment_file.load` reads a file into an `Experiment`; `docs/experiment.md`, the JSON schema and the
default file are generated from the descriptions below.
"""

import difflib
import hashlib
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn, Self, get_args

from pydantic import BaseModel, ConfigDict, Field, JsonValue, field_validator, model_validator
from pydantic_core import PydanticCustomError

from nnlo_lib.data.catalog import CATALOG
from nnlo_lib.models.registry import MODELS

NAME = r"^[A-Za-z0-9][A-Za-z0-9_.-]*$"  # becomes a folder name and a Snakemake wildcard


def nearest(word: str, known: Iterable[str]) -> str:
    """Say which known name `word` was probably meant to be, or list them all."""
    known = sorted(known)
    close = difflib.get_close_matches(word, known, n=1)
    return f"did you mean '{close[0]}'?" if close else f"known: {', '.join(known)}"


def refuse(message: str, *at: str) -> NoReturn:
    """Refuse an experiment; `at` is the key to point at, below the model that refuses."""
    raise PydanticCustomError("refused", "{message}", {"message": message, "at": at})


class Strict(BaseModel):
    """A frozen block of the experiment file that refuses unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Data(Strict):
    """What is learned from: a data set of the catalog, converted once to the common store."""

    dataset: str = Field(
        "digits",
        description="Name in the catalog: digits (embedded) or mnist.",
        json_schema_extra={"enum": [*CATALOG]},
    )
    source: str | None = Field(
        None, description="Folder or URL that holds the original files; null: the documented mirrors."
    )
    format: Literal["hdf5", "npz"] = Field("hdf5", description="File format of the store.")
    shard_size: int = Field(10_000, ge=1, description="Samples per shard of the store.")
    validation: float = Field(
        0.1,
        ge=0,
        lt=1,
        description="Fraction of the training samples held back for validation (without folds).",
    )

    @field_validator("dataset")
    @classmethod
    def _in_catalog(cls, name: str) -> str:
        if name not in CATALOG:
            refuse(f"unknown data set '{name}'; {nearest(name, CATALOG)}")
        return name


class Model(Strict):
    """Which network is trained."""

    name: str = Field(
        "simplemlp",
        description="Name in the model zoo, or `path/to/file.py:function` that returns a torch Module.",
        json_schema_extra={
            "anyOf": [{"enum": [*MODELS]}, {"pattern": r"\.py:", "description": "`path.py:function`"}]
        },
    )
    args: dict[str, JsonValue] = Field({}, description="Keyword arguments passed to the model's function.")

    @field_validator("name")
    @classmethod
    def _known(cls, name: str) -> str:
        if ".py:" in name:
            if not Path(name.rpartition(":")[0]).is_file():
                refuse(
                    f"model file '{name.rpartition(':')[0]}' does not exist (paths start where you run nnlo)"
                )
        elif name not in MODELS:
            refuse(f"unknown model '{name}'; {nearest(name, MODELS)}, or path/to/file.py:function")
        return name


class SGD(Strict):
    """Stochastic gradient descent, with momentum (Sutskever et al. 2013)."""

    name: Literal["sgd"] = "sgd"
    lr: float = Field(0.01, gt=0, description="Learning rate.")
    momentum: float = Field(0.0, ge=0, lt=1, description="Momentum.")
    nesterov: bool = Field(False, description="Nesterov's momentum.")
    weight_decay: float = Field(0.0, ge=0, description="L2 penalty added to the gradient.")

    @model_validator(mode="after")
    def _nesterov_needs_momentum(self) -> Self:
        if self.nesterov and self.momentum == 0:
            refuse("nesterov needs momentum > 0", "nesterov")
        return self


class Adam(Strict):
    """Adam (Kingma and Ba 2015)."""

    name: Literal["adam"] = "adam"
    lr: float = Field(0.001, gt=0, description="Learning rate.")
    beta1: float = Field(0.9, ge=0, lt=1, description="Decay of the first moment.")
    beta2: float = Field(0.999, ge=0, lt=1, description="Decay of the second moment.")
    epsilon: float = Field(1e-8, gt=0, description="Added to the root of the second moment.")
    weight_decay: float = Field(0.0, ge=0, description="L2 penalty added to the gradient.")


class RMSprop(Strict):
    """RMSprop (Tieleman and Hinton 2012)."""

    name: Literal["rmsprop"] = "rmsprop"
    lr: float = Field(0.001, gt=0, description="Learning rate.")
    rho: float = Field(0.9, ge=0, lt=1, description="Decay of the squared gradient.")
    momentum: float = Field(0.0, ge=0, lt=1, description="Momentum.")
    epsilon: float = Field(1e-8, gt=0, description="Added to the root of the squared gradient.")
    weight_decay: float = Field(0.0, ge=0, description="L2 penalty added to the gradient.")


class Adadelta(Strict):
    """Adadelta (Zeiler 2012)."""

    name: Literal["adadelta"] = "adadelta"
    lr: float = Field(1.0, gt=0, description="Factor on the update.")
    rho: float = Field(0.95, ge=0, lt=1, description="Decay of the squared gradient and update.")
    epsilon: float = Field(1e-6, gt=0, description="Added under both roots.")
    weight_decay: float = Field(0.0, ge=0, description="L2 penalty added to the gradient.")


Optimizer = Annotated[SGD | Adam | RMSprop | Adadelta, Field(discriminator="name")]


class Train(Strict):
    """How long and how fast one replica learns."""

    epochs: int = Field(10, ge=1, description="Passes over the training samples.")
    batch_size: int = Field(64, ge=1, description="Samples per step and worker.")
    optimizer: Optimizer = Field(
        SGD(momentum=0.9), description="Update rule: sgd, adam, rmsprop or adadelta."
    )
    keep_checkpoints: int = Field(2, ge=1, description="Newest checkpoints kept in state/.")


class AllReduce(Strict):
    """Synchronous data parallel: every step averages the gradients of all ranks."""

    name: Literal["allreduce"] = "allreduce"
    reduction: Literal["reproducible", "fastest"] = Field(
        "reproducible", description="Add in rank order (same bits on every transport), or as MPI likes best."
    )


class Downpour(Strict):
    """One server holds the parameters, workers send it gradients (Dean et al. 2012)."""

    name: Literal["downpour"] = "downpour"
    synchronous: bool = Field(False, description="The server waits for all workers and averages.")
    sync_every: int = Field(1, ge=1, description="Batches a worker computes between two exchanges.")
    optimizer: Optimizer | None = Field(None, description="The server's update rule; null: that of `train`.")


Algorithm = Annotated[AllReduce | Downpour, Field(discriminator="name")]


class Simulation(Strict):
    """The virtual machine that `transport: simulated` pretends to have."""

    sample_seconds: float = Field(1e-4, gt=0, description="Seconds to compute one sample.")
    latency: float = Field(1e-5, ge=0, description="Seconds before a message's first byte arrives.")
    bandwidth: float = Field(1.25e9, gt=0, description="Bytes per second of each link (1.25e9: 10 Gb/s).")


class Parallel(Strict):
    """How many processes train one model and how they talk."""

    ranks: int = Field(2, ge=1, description="MPI processes of one training, servers included.")
    processes_per_worker: int = Field(
        1, ge=1, description="Ranks that form one worker and average their gradients first (downpour only)."
    )
    threads_per_rank: int = Field(
        1, ge=1, description="Threads of each rank (up to cores / ranks is sensible)."
    )
    gpus_per_rank: int = Field(0, ge=0, le=1, description="GPUs of each rank.")
    transport: Literal["mpi", "simulated"] = Field(
        "mpi", description="Real processes, or all ranks in one process under a virtual clock."
    )
    peer_timeout: float = Field(
        600.0, gt=0, description="Seconds a rank waits for a silent peer before it ends the run and names it."
    )
    simulation: Simulation = Field(Simulation(), description="Used by `transport: simulated`.")


class Resources(Strict):
    """What one training asks of the scheduler."""

    runtime: int = Field(60, ge=1, description="Time limit in minutes.")
    mem_mb: int = Field(4000, ge=1, description="Memory of the whole job in MB.")
    nodes: int = Field(1, ge=1, description="Nodes that the ranks are spread over.")
    partition: str | None = Field(None, description="Slurm partition or LSF queue; null: the site's default.")
    account: str | None = Field(None, description="Slurm account or LSF project; null: the profile's.")


class Run(Strict):
    """One training, complete: what `runs` may change."""

    data: Data = Field(Data(), description="What is learned from.")
    model: Model = Field(Model(), description="Which network is trained.")
    problem: Literal["classification"] = Field("classification", description="What is learned.")
    loss: Literal["cross_entropy", "mse"] = Field(
        "cross_entropy", description="What is minimised (mse: against one-hot classes)."
    )
    metrics: tuple[Literal["accuracy", "top5_accuracy"], ...] = Field(
        ("accuracy",), description="What is measured besides the loss."
    )
    train: Train = Field(Train(), description="How long and how fast.")
    algorithm: Algorithm = Field(AllReduce(), description="How the replicas agree: allreduce or downpour.")
    parallel: Parallel = Field(Parallel(), description="How many processes and how they talk.")
    resources: Resources = Field(Resources(), description="What the scheduler is asked for.")

    @model_validator(mode="after")
    def _combination_makes_sense(self) -> Self:
        ranks, group = self.parallel.ranks, self.parallel.processes_per_worker
        match self.algorithm:
            case Downpour() if ranks < 2:
                refuse("downpour needs at least 2 ranks: one server and one worker", "parallel", "ranks")
            case Downpour() if (ranks - 1) % group:
                refuse(
                    f"{ranks} ranks less one server do not divide into workers of {group}",
                    "parallel",
                    "ranks",
                )
            case AllReduce() if group > 1:
                refuse(
                    "allreduce has no workers of several processes; use more ranks",
                    "parallel", "processes_per_worker",
                )  # fmt: skip
        if self.resources.nodes > ranks:
            refuse(f"{self.resources.nodes} nodes for {ranks} ranks leaves nodes idle", "resources", "nodes")
        return self

    @property
    def hash(self) -> str:
        """Fingerprint of everything that determines the result (resources do not)."""
        text = json.dumps(self.model_dump(exclude={"resources"}), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


class Job(Strict):
    """One leaf of the DAG: a run with a seed and, in cross-validation, a fold."""

    run: str
    seed: int
    fold: int | None = None

    @property
    def path(self) -> str:
        """Folder of the job below results/<experiment>/."""
        fold = "" if self.fold is None else f"/fold-{self.fold}"
        return f"{self.run}/seed-{self.seed}{fold}"


class Experiment(Run):
    """A whole experiment file: a base run, and what is varied."""

    name: str = Field(
        "experiment",
        pattern=NAME,
        description="Folder of the results, below results/: letters, digits, _, . and -.",
    )
    seeds: tuple[Annotated[int, Field(ge=0)], ...] = Field(
        (0,), min_length=1, description="One training per seed: initial weights, data split, order, dropout."
    )
    folds: int = Field(
        1, ge=1, description="k of k-fold cross-validation; 1: one split by `data.validation`."
    )
    runs: dict[Annotated[str, Field(pattern=NAME)], dict[str, Any]] = Field(
        {}, description="Named variants: each overrides keys of the base above. Empty: the base itself."
    )
    optimize: None = Field(None, description="Room for the hyper-parameter search, which is not there yet.")

    @model_validator(mode="after")
    def _vary_sensibly(self) -> Self:
        if len(set(self.seeds)) < len(self.seeds):
            refuse("a seed is listed twice", "seeds")
        return self

    @property
    def variants(self) -> dict[str, Run]:
        """Every run by name, the overrides merged into the base."""
        base = self.model_dump(include=set(Run.model_fields))
        named = self.runs or {self.algorithm.name: {}}
        return {name: Run.model_validate(merge(base, changes)) for name, changes in named.items()}

    def jobs(self) -> Iterator[Job]:
        """Yield every training of the experiment."""
        folds = [None] if self.folds == 1 else range(self.folds)
        for run in self.variants:
            for seed in self.seeds:
                for fold in folds:
                    yield Job(run=run, seed=seed, fold=fold)


def merge(base: Any, changes: Any) -> Any:
    """Override `base` by `changes`, mapping by mapping; a new `name` starts its block afresh."""
    if not (isinstance(base, dict) and isinstance(changes, dict)):
        return changes
    if "name" in changes and changes["name"] != base.get("name"):
        return changes
    return base | {key: merge(base.get(key), value) for key, value in changes.items()}


def blocks(annotation: Any) -> Iterator[type[Strict]]:
    """Yield every block that a field of this type may hold: one, or the members of a union."""
    if isinstance(annotation, type) and issubclass(annotation, Strict):
        yield annotation
    for part in get_args(annotation):
        yield from blocks(part)
