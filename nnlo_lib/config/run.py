"""One training, complete."""

import hashlib
import json
from typing import Literal, Self

from pydantic import Field, model_validator

from nnlo_lib.config.algorithm import Algorithm, AllReduce, Average, DiLoCo, Downpour
from nnlo_lib.config.data import Data
from nnlo_lib.config.model import Model
from nnlo_lib.config.parallel import Parallel, Resources
from nnlo_lib.config.strict import Strict, refuse
from nnlo_lib.config.train import Train


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
    algorithm: Algorithm = Field(
        AllReduce(), description="How the replicas agree: allreduce, average, diloco or downpour."
    )
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
            case AllReduce() | Average() | DiLoCo() if group > 1:
                refuse(
                    f"{self.algorithm.name} has no workers of several processes; use more ranks",
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
