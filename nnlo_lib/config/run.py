"""One training, complete."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Self

from pydantic import Field, ValidationInfo, model_validator

from nnlo_lib.config.algorithm import AlgorithmConfig
from nnlo_lib.config.base import ConfigModel, non_defaults, raise_config_error
from nnlo_lib.config.checkpoint import CheckpointConfig
from nnlo_lib.config.collective import AllReduceConfig
from nnlo_lib.config.compression import CompressionConfig, NoCompressionConfig
from nnlo_lib.config.data import DataConfig
from nnlo_lib.config.metrics import (
    DEFAULT_METRICS,
    LOSSES,
    Loss,
    metric_column,
    metrics_schema,
    names_schema,
    refuse_unknown_loss,
    refuse_unknown_metrics,
)
from nnlo_lib.config.model import ModelConfig
from nnlo_lib.config.observe import ObserveConfig
from nnlo_lib.config.parallel import ParallelConfig, ResourcesConfig
from nnlo_lib.config.problem import (
    ClassificationConfig,
    ProblemConfig,
    UserProblemConfig,
    allow_name_in_schema,
)
from nnlo_lib.config.rules.combinations import first_fault
from nnlo_lib.config.topology import CompleteGraphConfig, TopologyConfig
from nnlo_lib.config.train import TrainConfig

PROBLEM_DEFAULT: Any = None  # the problem's own, filled in when the run is checked
PROBLEM_DEFAULT_KEYS = ("loss", "metrics")


class Run(ConfigModel):
    """One training, complete: what `runs` may change."""

    data: DataConfig = Field(DataConfig(), description="What is learned from.")
    model: ModelConfig = Field(ModelConfig(), description="Which network is trained.")
    train: TrainConfig = Field(TrainConfig(), description="How long and how fast.")
    problem: ProblemConfig = Field(
        ClassificationConfig(),
        description="What is learned: classification, regression or gan; its name is enough.",
        json_schema_extra=allow_name_in_schema,
    )
    loss: Loss = Field(
        PROBLEM_DEFAULT,
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
        PROBLEM_DEFAULT,
        description="What is measured besides the loss: names (any loss too, and topK_accuracy for any K), or "
        "`path.py:function`; `name@output` measures another output than the first. null: [accuracy], [mae] or a gan's all.",
        json_schema_extra=metrics_schema,
    )
    algorithm: AlgorithmConfig = Field(
        AllReduceConfig(),
        description="How the replicas agree; docs/reference/algorithms.md says what each is and needs.",
    )
    topology: TopologyConfig = Field(
        CompleteGraphConfig(),
        description="Who talks to whom, for algorithms whose nodes agree with their neighbours.",
    )
    compression: CompressionConfig = Field(
        NoCompressionConfig(), description="How exchanged vectors are written in fewer bytes."
    )
    parallel: ParallelConfig = Field(ParallelConfig(), description="How many processes and how they talk.")
    checkpoint: CheckpointConfig = Field(
        CheckpointConfig(), description="When the run is saved, and which checkpoints are kept."
    )
    observe: ObserveConfig = Field(ObserveConfig(), description="What is looked at while it goes on.")
    resources: ResourcesConfig = Field(ResourcesConfig(), description="What the scheduler is asked for.")

    @model_validator(mode="before")
    @classmethod
    def _problem_by_name(cls, values: Any) -> Any:
        """Read `problem: regression`, and null for what the problem chooses."""
        if not isinstance(values, dict):
            return values
        values = {
            key: value
            for key, value in values.items()
            if key not in PROBLEM_DEFAULT_KEYS or value is not None
        }
        named = values.get("problem")
        return values | {"problem": {"name": named}} if isinstance(named, str) else values

    @model_validator(mode="after")
    def _measures_of_the_problem(self, info: ValidationInfo) -> Self:
        """Fill in the loss and the metrics that nobody wrote; they do not count as set."""
        if isinstance(self.problem, UserProblemConfig):
            return self._measures_of_a_user_problem(self.problem)
        problem = self.problem.name
        self._fill_in({"loss": LOSSES[problem][0], "metrics": DEFAULT_METRICS[problem]})
        refuse_unknown_loss(problem, self.loss, self.loss_weights, info)
        refuse_unknown_metrics(problem, self.metrics, info)
        return self

    def _measures_of_a_user_problem(self, problem: UserProblemConfig) -> Self:
        if not problem.exists:  # of a past run, whose loss and metrics are recorded
            return self
        own = {"loss": problem.class_name, "metrics": problem.metrics}
        self._fill_in(own)
        for key, value in own.items():
            if getattr(self, key) != value:
                raise_config_error(f"{problem.name} defines it; leave it out", key)
        return self

    def _fill_in(self, values: Mapping[str, Any]) -> None:
        self.__dict__.update({key: value for key, value in values.items() if self.__dict__[key] is None})

    @model_validator(mode="after")
    def _combination_makes_sense(self) -> Self:
        ranks = self.parallel.ranks
        if found := first_fault(self):
            raise_config_error(found.reason, *found.at)
        if self.resources.nodes > ranks:
            raise_config_error(
                f"{self.resources.nodes} nodes for {ranks} ranks leaves nodes idle", "resources", "nodes"
            )
        if unprofiled := self._profile_error():
            raise_config_error(unprofiled, "observe", "profile")
        if self.checkpoint.best not in (None, *self.measured):
            raise_config_error(
                f"{self.checkpoint.best} is not measured; add it to metrics", "checkpoint", "best"
            )
        return self

    @property
    def measured(self) -> tuple[str, ...]:
        """What is measured, as tables call it."""
        return ("loss", *map(metric_column, self.metrics))

    @property
    def settings(self) -> dict[str, Any]:
        """What a run with changes is made of: all its keys, without what its problem filled in."""
        return self.model_dump(include=set(Run.model_fields) - self.problem_default_keys)

    @property
    def problem_default_keys(self) -> set[str]:
        """Keys whose values the problem chose."""
        return {key for key in PROBLEM_DEFAULT_KEYS if key not in self.model_fields_set}

    def _profile_error(self) -> str | None:
        """Return why the rank that is to be profiled cannot be."""
        profile, ranks = self.observe.profile, self.parallel.ranks
        if profile and profile.rank >= ranks:
            return f"there is no rank {profile.rank}; there are ranks 0 to {ranks - 1}"
        if profile and profile.tool == "cprofile" and self.parallel.transport == "simulated" and ranks > 1:
            return (
                "simulated ranks take turns in one process, where cprofile cannot tell them apart; use torch"
            )
        return None

    @property
    def hash(self) -> str:
        """Fingerprint of everything that determines the result (resources, checkpoints and observers do not).

        Of that what is not the default, so that keys which a later nnlo adds change nothing.
        """
        text = json.dumps(
            non_defaults(self.with_defaults_for("resources", "checkpoint", "observe")), sort_keys=True
        )
        return hashlib.sha256(text.encode()).hexdigest()[:16]


class JobSpec(ConfigModel):
    """One training job of the DAG: a run with a seed and, in cross-validation, a fold."""

    run: str
    seed: int
    fold: int | None = None

    @property
    def path(self) -> str:
        """Folder of the job below results/<experiment>/."""
        fold = "" if self.fold is None else f"/fold-{self.fold}"
        return f"{self.run}/seed-{self.seed}{fold}"
