"""Settings of one run, one of its trainings as a job, and the changed settings as text."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Self

from pydantic import Field, ValidationInfo, model_validator

from nnlo_lib.config.algorithm import AlgorithmConfig, AllReduceConfig
from nnlo_lib.config.base import (
    RECORDED_RUN_CONTEXT,
    ConfigModel,
    EditEffect,
    keys_with,
    non_defaults,
    raise_config_error,
)
from nnlo_lib.config.checkpoint import CheckpointConfig, ObserveConfig
from nnlo_lib.config.compression import CompressionConfig, NoCompressionConfig
from nnlo_lib.config.data import DataConfig
from nnlo_lib.config.metrics import (
    DEFAULT_METRICS,
    LOSSES,
    SYNONYMS,
    Loss,
    Metric,
    metric_column,
    metrics_schema,
    names_schema,
    refuse_unknown_loss,
    refuse_unknown_metrics,
    set_metrics,
)
from nnlo_lib.config.model import ModelConfig, input_files
from nnlo_lib.config.parallel import ParallelConfig, ResourcesConfig
from nnlo_lib.config.problem import (
    ClassificationConfig,
    ProblemConfig,
    UserProblemConfig,
    allow_name_in_schema,
)
from nnlo_lib.config.rules.combinations import run_faults
from nnlo_lib.config.topology import CompleteGraphConfig, TopologyConfig
from nnlo_lib.config.train import TrainConfig
from nnlo_lib.core.secrets import mask_settings

# Placeholder of the problem's default, which validation fills in.
PROBLEM_DEFAULT: Any = None
PROBLEM_DEFAULT_KEYS = ("loss", "metrics")
# The key of the data store includes the files of the reader.
DATA_AND_PLACEMENT = {"data", "checkpoint", "observe", "resources"}


class Run(ConfigModel):
    """The complete settings of one run: the keys that an entry of `runs` can override."""

    data: DataConfig = DataConfig()
    """The data set."""
    model: ModelConfig = ModelConfig()
    train: TrainConfig = TrainConfig()
    problem: ProblemConfig = Field(ClassificationConfig(), json_schema_extra=allow_name_in_schema)
    """Learning problem; a section, or only its name."""
    loss: Loss = Field(
        PROBLEM_DEFAULT,
        json_schema_extra={"anyOf": [names_schema(LOSSES), {"type": "object"}, {"type": "null"}]},
    )
    """Loss that is minimized: a name, or `path.py:function` of (outputs, targets) that returns a tensor (samples,). For
    a model with several outputs also a mapping from their names or indices to losses. null: the default of the problem
    (cross_entropy, mse, wasserstein)."""
    loss_weights: dict[str, float] = Field({})
    """Weights of the losses of several outputs in their sum; 1 if not given."""
    metrics: Annotated[tuple[Metric, ...], EditEffect.EVALUATE] = Field(
        PROBLEM_DEFAULT, json_schema_extra=metrics_schema
    )
    """Metrics that are measured in addition to the loss: names (also of losses, and topK_accuracy for any K), or
    `path.py:function`; `name@output` selects an output other than the first. The evaluation after the training also
    measures f1, roc_auc (or auc), average_precision, calibration_error, r2 and `set:path.py:function`, of all samples together.
    null: the default of the problem ([accuracy], [mae], or all metrics of a gan)."""
    algorithm: AlgorithmConfig = AllReduceConfig()
    """Distribution algorithm (docs/reference/algorithms.md)."""
    topology: TopologyConfig = CompleteGraphConfig()
    """Graph between the nodes, for algorithms that exchange vectors with neighbors."""
    compression: CompressionConfig = NoCompressionConfig()
    """Compression of exchanged vectors."""
    parallel: ParallelConfig = ParallelConfig()
    """Number of processes, and their communication."""
    checkpoint: Annotated[CheckpointConfig, EditEffect.NEXT_ATTEMPT] = CheckpointConfig()
    """Interval of checkpoints, and the checkpoints that are kept."""
    observe: Annotated[ObserveConfig, EditEffect.NEXT_ATTEMPT] = ObserveConfig()
    """Tracing, monitoring and profiling."""
    resources: Annotated[ResourcesConfig, EditEffect.NEXT_ATTEMPT] = ResourcesConfig()
    """Resources that are requested from the scheduler."""

    @model_validator(mode="before")
    @classmethod
    def _problem_by_name(cls, values: Any) -> Any:
        """Accept a name as `problem`, a section without it as of a classification, and null for keys with a default of the problem."""
        if not isinstance(values, dict):
            return values
        values = {
            key: value
            for key, value in values.items()
            if key not in PROBLEM_DEFAULT_KEYS or value is not None
        }
        named = values.get("problem")
        if isinstance(named, dict) and "name" not in named:
            return values | {"problem": {"name": "classification", **named}}
        return values | {"problem": {"name": named}} if isinstance(named, str) else values

    @model_validator(mode="after")
    def _fill_problem_defaults(self, info: ValidationInfo) -> Self:
        """Fill in a missing loss and missing metrics without marking them as set, then check both."""
        if isinstance(self.problem, UserProblemConfig):
            # A past run has recorded its loss and metrics; reading it runs no code of the user.
            recorded = info.context == RECORDED_RUN_CONTEXT or not self.problem.exists
            return self if recorded else self._fill_user_problem_defaults(self.problem)
        problem = self.problem.name
        self._fill_in({"loss": LOSSES[problem][0], "metrics": DEFAULT_METRICS[problem]})
        refuse_unknown_loss(problem, self.loss, self.loss_weights, info)
        refuse_unknown_metrics(problem, self.metrics, info)
        return self

    def _fill_user_problem_defaults(self, problem: UserProblemConfig) -> Self:
        """Fill in the loss and the metrics that the user's class defines, and refuse others."""
        own = {"loss": problem.class_name, "metrics": problem.metrics}
        self._fill_in(own)
        for key, value in own.items():
            if getattr(self, key) != value:
                raise_config_error(f"{problem.name} defines its loss and metrics; remove this key", key)
        return self

    def _fill_in(self, values: Mapping[str, Any]) -> None:
        # The model is frozen, and an assignment would mark the keys as set (`problem_default_keys`).
        self.__dict__.update({key: value for key, value in values.items() if self.__dict__[key] is None})

    @model_validator(mode="after")
    def _check_combinations(self, info: ValidationInfo) -> Self:
        if info.context == RECORDED_RUN_CONTEXT:
            return self  # The checks load the user's algorithm, and reading results must run no code of the user.
        for fault in run_faults(self):
            key, _, reason = fault.partition(": ")
            raise_config_error(reason, *key.split("."))
        return self

    @property
    def measured(self) -> tuple[str, ...]:
        """Column names of the loss and the metrics that each epoch measures."""
        return ("loss", *map(metric_column, self.sample_metrics))

    @property
    def evaluated(self) -> set[str]:
        """Names of the loss and the metrics of the evaluation after the training."""
        return {"loss", *map(metric_column, self.metrics)}

    @property
    def set_metrics(self) -> tuple[str, ...]:
        """Metrics of all samples together, which only the evaluation after the training measures."""
        return set_metrics(self.problem.name, self.metrics)

    @property
    def sample_metrics(self) -> tuple[str, ...]:
        """Metrics that are means over samples, or of counts that add up."""
        return tuple(each for each in self.metrics if each not in self.set_metrics)

    def of_set_reason(self, column: str) -> str:
        """Return why no epoch measures a column, as the end of a sentence; empty if it is no metric of all samples."""
        if SYNONYMS.get(column, column) not in map(metric_column, self.set_metrics):
            return ""
        return f" in an epoch: it is of all samples together; choose one of: {', '.join(self.measured)}"

    @property
    def workers(self) -> int:
        """Number of workers: groups of `parallel.processes_per_worker` ranks, without the servers."""
        return (self.parallel.ranks - self.algorithm.servers) // self.parallel.processes_per_worker

    @property
    def worker_train(self) -> TrainConfig:
        """Section `train`, with the workers' own optimizer if the algorithm gives them one."""
        own = self.algorithm.worker_optimizer
        return self.train if own is None else self.train.model_copy(update={"optimizer": own})

    @property
    def input_files(self) -> tuple[str, ...]:
        """User's files that the result depends on, except the data: code with its imports, networks, weights."""
        # An experiment also has the keys `search` and `runs`.
        return input_files(self.model_dump(mode="json", include=set(Run.model_fields) - DATA_AND_PLACEMENT))

    @property
    def settings(self) -> dict[str, Any]:
        """All settings, without keys that have the default of the problem; the base for overrides."""
        # A default of one problem must not override the default of another problem that a run or a trial selects.
        return self.model_dump(include=set(Run.model_fields) - self.problem_default_keys)

    @property
    def problem_default_keys(self) -> set[str]:
        """Keys whose values are defaults of the problem."""
        return {key for key in PROBLEM_DEFAULT_KEYS if key not in self.model_fields_set}

    @property
    def shown(self) -> dict[str, Any]:
        """All settings as JSON values with masked secrets, for files that are shown."""
        return {key: mask_settings(value) for key, value in self.model_dump(mode="json").items()}

    @property
    def result_settings(self) -> str:
        """Settings on which the results depend, as JSON; an edit of the others changes nothing that is finished."""
        run = self.with_defaults_for(*keys_with(Run, EditEffect.NEXT_ATTEMPT, EditEffect.SAME_DATA))
        return json.dumps(mask_settings(non_defaults(run)), sort_keys=True)

    @property
    def training_settings(self) -> str:
        """Settings on which a finished training depends, as JSON; an edit of the others trains nothing again."""
        return self.with_defaults_for(*keys_with(Run, EditEffect.EVALUATE)).result_settings

    @property
    def hash(self) -> str:
        """Hash of the settings that determine the result: all except `resources`, `checkpoint` and `observe`.

        Settings with their default value are left out, so that keys of later versions do not change the hash.
        """
        settings = non_defaults(self.with_defaults_for("resources", "checkpoint", "observe"))
        text = json.dumps(mask_settings(settings), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


class JobSpec(ConfigModel):
    """One training of an experiment; `run` is the name of its run, `fold` is None without cross-validation."""

    run: str
    seed: int
    fold: int | None = None

    @property
    def path(self) -> str:
        """Folder of the job below results/<experiment>/."""
        fold = "" if self.fold is None else f"/fold-{self.fold}"
        return f"{self.run}/seed-{self.seed}{fold}"


def changed_settings(run: Run) -> Iterator[str]:
    """Yield a line for each section of a run with the settings that are no defaults: `train: epochs 4, optimizer.lr 0.1`."""
    name = run.problem.name
    of_problem = {"loss": LOSSES.get(name, ("",))[0], "metrics": list(DEFAULT_METRICS.get(name, ()))}
    for section, value in non_defaults(run).items():
        if value != of_problem.get(section) and (settings := list(_settings(value))):
            yield f"{section}: {', '.join(settings)}"


def _settings(value: Any, key: str = "") -> Iterator[str]:
    """Yield `key value` for each value in nested settings; the name of a variant has the key of the variant."""
    if isinstance(value, dict):
        for name, each in sorted(value.items(), key=lambda item: item[0] != "name"):
            yield from _settings(each, key if name == "name" else f"{key}.{name}".lstrip("."))
    else:
        text = value if isinstance(value, str) else json.dumps(value)
        yield f"{key} {text}".lstrip()
