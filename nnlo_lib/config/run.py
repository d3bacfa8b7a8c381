"""One training, complete."""

import hashlib
import json
from typing import Any, Self

from pydantic import Field, ValidationInfo, model_validator

from nnlo_lib.config.algorithm import Algorithm
from nnlo_lib.config.checkpoint import Checkpoint
from nnlo_lib.config.collective import AllReduce
from nnlo_lib.config.compression import Compression, NoCompression
from nnlo_lib.config.data import Data
from nnlo_lib.config.measures import (
    LOSSES,
    OWN,
    Loss,
    column,
    metrics_schema,
    names_schema,
    refuse_unknown_loss,
    refuse_unknown_metrics,
)
from nnlo_lib.config.model import Model
from nnlo_lib.config.observe import Observe
from nnlo_lib.config.parallel import Parallel, Resources
from nnlo_lib.config.problem import Classification, Problem, or_its_name
from nnlo_lib.config.strict import Strict, refuse, wishes
from nnlo_lib.config.topology import Complete, Topology
from nnlo_lib.config.train import Train
from nnlo_lib.config.validity import fault

NONE: Any = None  # the problem's own, filled in when the run is checked
FILLED = ("loss", "metrics")


class Run(Strict):
    """One training, complete: what `runs` may change."""

    data: Data = Field(Data(), description="What is learned from.")
    model: Model = Field(Model(), description="Which network is trained.")
    train: Train = Field(Train(), description="How long and how fast.")
    problem: Problem = Field(
        Classification(),
        description="What is learned: classification, regression or gan; its name is enough.",
        json_schema_extra=or_its_name,
    )
    loss: Loss = Field(
        NONE,
        description="What is minimised: a name, or `path.py:function` of (outputs, targets) that returns (samples,); of "
        "a model with several outputs also a mapping by their names or places. null: the problem's own "
        "(cross_entropy, mse, wasserstein).",
        json_schema_extra={"anyOf": [names_schema(LOSSES), {"type": "object"}, {"type": "null"}]},
    )
    loss_weights: dict[str, float] = Field(
        {},
        description="What the losses of several outputs are multiplied by before they are added; 1 where not given.",
    )
    metrics: tuple[str, ...] = Field(
        NONE,
        description="What is measured besides the loss: names (any loss too, and topK_accuracy for any K), or "
        "`path.py:function`; `name@output` measures another output than the first. null: [accuracy], [mae] or a gan's all.",
        json_schema_extra=metrics_schema,
    )
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
    observe: Observe = Field(Observe(), description="What is looked at while it goes on.")
    resources: Resources = Field(Resources(), description="What the scheduler is asked for.")

    @model_validator(mode="before")
    @classmethod
    def _problem_by_name(cls, values: Any) -> Any:
        """Read `problem: regression`, and null for what the problem chooses."""
        if not isinstance(values, dict):
            return values
        values = {key: value for key, value in values.items() if key not in FILLED or value is not None}
        named = values.get("problem")
        return values | {"problem": {"name": named}} if isinstance(named, str) else values

    @model_validator(mode="after")
    def _measures_of_the_problem(self, info: ValidationInfo) -> Self:
        """Fill in the loss and the metrics that nobody wrote; they do not count as set."""
        problem = self.problem.name
        own = {"loss": LOSSES[problem][0], "metrics": OWN[problem]}
        self.__dict__.update({key: value for key, value in own.items() if self.__dict__[key] is None})
        refuse_unknown_loss(problem, self.loss, self.loss_weights, info)
        refuse_unknown_metrics(problem, self.metrics, info)
        return self

    @model_validator(mode="after")
    def _combination_makes_sense(self) -> Self:
        ranks = self.parallel.ranks
        if found := fault(self):
            refuse(found.reason, *found.at)
        if self.resources.nodes > ranks:
            refuse(f"{self.resources.nodes} nodes for {ranks} ranks leaves nodes idle", "resources", "nodes")
        if unprofiled := self._unprofiled():
            refuse(unprofiled, "observe", "profile")
        if self.checkpoint.best not in (None, *self.measured):
            refuse(f"{self.checkpoint.best} is not measured; add it to metrics", "checkpoint", "best")
        return self

    @property
    def measured(self) -> tuple[str, ...]:
        """What is measured, as tables call it."""
        return ("loss", *map(column, self.metrics))

    @property
    def settings(self) -> dict[str, Any]:
        """What a run with changes is made of: all its keys, without what its problem filled in."""
        return self.model_dump(include=set(Run.model_fields) - self.filled)

    @property
    def filled(self) -> set[str]:
        """Keys whose values the problem chose."""
        return {key for key in FILLED if key not in self.model_fields_set}

    def _unprofiled(self) -> str | None:
        """Return why the rank that is to be profiled cannot be."""
        wish, ranks = self.observe.profile, self.parallel.ranks
        if wish and wish.rank >= ranks:
            return f"there is no rank {wish.rank}; there are ranks 0 to {ranks - 1}"
        if wish and wish.tool == "cprofile" and self.parallel.transport == "simulated" and ranks > 1:
            return (
                "simulated ranks take turns in one process, where cprofile cannot tell them apart; use torch"
            )
        return None

    @property
    def hash(self) -> str:
        """Fingerprint of everything that determines the result (resources, checkpoints and observers do not).

        Of that what is not the default, so that keys which a later nnlo adds change nothing.
        """
        text = json.dumps(wishes(self.without("resources", "checkpoint", "observe")), sort_keys=True)
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
