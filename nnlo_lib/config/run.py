"""One training, complete."""

import hashlib
import json
from typing import Literal, Self

from pydantic import Field, model_validator

from nnlo_lib.config.algorithm import Algorithm
from nnlo_lib.config.checkpoint import Checkpoint
from nnlo_lib.config.collective import AllReduce
from nnlo_lib.config.compression import Compression, NoCompression
from nnlo_lib.config.data import Data
from nnlo_lib.config.model import Model
from nnlo_lib.config.parallel import Parallel, Resources
from nnlo_lib.config.strict import Strict, refuse
from nnlo_lib.config.topology import Complete, Topology
from nnlo_lib.config.train import Train
from nnlo_lib.config.validity import fault


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
        AllReduce(), description="How the replicas agree; docs/algorithms.md says what each is and needs."
    )
    topology: Topology = Field(
        Complete(), description="Who talks to whom, for algorithms whose nodes agree with their neighbours."
    )
    compression: Compression = Field(
        NoCompression(), description="How exchanged vectors are written in fewer bytes."
    )
    parallel: Parallel = Field(Parallel(), description="How many processes and how they talk.")
    checkpoint: Checkpoint = Field(
        Checkpoint(), description="When the run is saved, and which checkpoints are kept."
    )
    resources: Resources = Field(Resources(), description="What the scheduler is asked for.")

    @model_validator(mode="after")
    def _combination_makes_sense(self) -> Self:
        ranks = self.parallel.ranks
        if found := fault(self):
            refuse(found.reason, *found.at)
        if self.resources.nodes > ranks:
            refuse(f"{self.resources.nodes} nodes for {ranks} ranks leaves nodes idle", "resources", "nodes")
        if self.checkpoint.best not in (None, "loss", *self.metrics):
            refuse(f"{self.checkpoint.best} is not measured; add it to metrics", "checkpoint", "best")
        return self

    @property
    def hash(self) -> str:
        """Fingerprint of everything that determines the result (resources and checkpoints do not)."""
        text = json.dumps(self.model_dump(exclude={"resources", "checkpoint"}), sort_keys=True)
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
