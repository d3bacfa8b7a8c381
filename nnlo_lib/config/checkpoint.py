"""Settings of checkpoints, and of tracing, monitoring and profiling: the sections `checkpoint` and `observe`."""

import re
from importlib.util import find_spec
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, field_validator

from nnlo_lib.config.base import SECONDS_OF_UNIT, ConfigModel, raise_config_error
from nnlo_lib.config.stopping import BestCheckpointConfig

INTERVAL = r"^[1-9]\d* (s|min|h|steps?|epochs?)$"
Interval = Annotated[str, Field(pattern=INTERVAL, examples=["30 s", "5 min", "2 h", "100 steps", "1 epoch"])]
ProfilerTool = Literal["torch", "cprofile"]
LOGGERS = {"tensorboard": "tensorboardX", "mlflow": "mlflow", "wandb": "wandb"}  # package of each key


class CheckpointConfig(ConfigModel):
    """Interval of checkpoints, and the checkpoints that are kept. A signal and the end of the run also save one."""

    every: Interval = "5 min"
    """Interval of checkpoints, the maximum loss of a killed run: a number and s, min, h, steps or epochs. Time is real
    time. Simulated ranks check it only at the end of each epoch; with asynchronous algorithms, they check steps there,
    too."""
    keep: int = Field(2, ge=1)
    """Number of newest checkpoints that are kept in state/."""
    keep_every: int | None = Field(None, ge=1)
    """Keep every n-th checkpoint permanently (of a trial of a search: until it ends); null: none."""
    best: str | BestCheckpointConfig | None = Field(
        None, examples=["loss", {"metric": "val_f1", "better": "larger"}]
    )
    """Metric, or loss, of validation by which the best checkpoint is kept, or a section with the metric and its better
    direction; a checkpoint is then saved at the end of each epoch; null: none."""

    @field_validator("every", mode="before")
    @classmethod
    def _is_interval(cls, every: Any) -> Any:
        # Before pydantic's own check, whose message would show the regular expression.
        if not re.match(INTERVAL, str(every)):
            raise_config_error(
                f"'{every}' is not an interval; write a positive integer, a space, and s, min, h, steps or epochs, such as "
                "5 min, 100 steps or 1 epoch"
            )
        return every

    @field_validator("best")
    @classmethod
    def _without_prefix(cls, best: str | BestCheckpointConfig | None) -> str | BestCheckpointConfig | None:
        """Also accept names with the prefix `val_`, which other keys require."""
        return best.removeprefix("val_") if isinstance(best, str) else best

    @property
    def best_rule(self) -> BestCheckpointConfig | None:
        """Metric and better direction of `best`; None: no checkpoint is kept by a metric."""
        return BestCheckpointConfig(metric=self.best) if isinstance(self.best, str) else self.best

    @property
    def seconds(self) -> float | None:
        """Seconds between two checkpoints; None if the interval is not a time."""
        return self._amount * SECONDS_OF_UNIT[self._unit] if self._unit in SECONDS_OF_UNIT else None

    @property
    def steps(self) -> int | None:
        """Steps between two checkpoints; None if the interval is not in steps."""
        return self._amount if self._unit.startswith("step") else None

    @property
    def epochs(self) -> int | None:
        """Epochs between two checkpoints; 1 if only `best` requires a checkpoint per epoch; else None."""
        if self._unit.startswith("epoch"):
            return self._amount
        return 1 if self.best else None

    @property
    def _amount(self) -> int:
        return int(self.every.split()[0])

    @property
    def _unit(self) -> str:
        return self.every.split()[1]


class ProfileConfig(ConfigModel):
    """A profiler for some steps of one rank."""

    tool: ProfilerTool = "torch"
    """torch: operators, as a table and a Chrome trace; cprofile: Python functions."""
    rank: int = Field(0, ge=0)
    """The profiled rank; a server is profiled until its first pause, not by steps."""
    first: int = Field(10, ge=1)
    """First profiled step, counted from 1."""
    steps: int = Field(20, ge=1)
    """Number of profiled steps."""


class ObserveConfig(ConfigModel):
    """Tracing, monitoring and profiling of a run, without effect on the result; see docs/guides/observe.md."""

    trace: bool = False
    """Record every phase of every step of all ranks in trace.json; false: only coarse phases."""
    monitor: float | None = Field(None, ge=0.05)
    """Seconds between two measurements of CPUs, memory and GPUs in monitor.csv; null: no measurements."""
    profile: Annotated[
        ProfileConfig | None,
        BeforeValidator(
            lambda value: {"tool": value} if isinstance(value, str) else value,
            json_schema_input_type=ProfileConfig | ProfilerTool | None,
        ),
    ] = None
    """Profiler for some steps: torch, cprofile, or a section with more settings; null: no profiler."""
    tensorboard: bool = False
    """Write the history as TensorBoard event files to the run's folder; requires nnlo[tensorboard]."""
    mlflow: bool = False
    """Log the history as a run of MLflow at MLFLOW_TRACKING_URI; without this variable, to mlflow.db in the run's
    folder. Requires nnlo[mlflow]."""
    wandb: bool = False
    """Log the history as a run of Weights & Biases, by the variables WANDB_* of the environment (WANDB_MODE=offline: to
    files in the run's folder). Requires nnlo[wandb]."""
    nnlo_history: bool = False
    """Write the history also as nnlo_history.json in the format of NNLO's <model>_<trial>_history.json, for its
    plotting scripts."""
    consensus_matrix: bool = False
    """Write the L2 distance of every pair of nodes at each validation to consensus.npz, and show the last one in the
    report; only for algorithms whose nodes have their own models."""
    sample_metrics: bool = False
    """Write loss and metrics of each validation sample, for each node's own model, at each validation to
    validation_metrics.npz; each validation then evaluates twice."""
    maps: bool = False
    """Write what each node's own model predicts in a plane at each validation to maps.npz, and show it in the report as
    pictures and as an animation; only for samples that are points, such as those of the data set lidar."""
    loss_average: float | None = Field(None, ge=0, lt=1, examples=[0.98])
    """Decay of the moving average of the training loss, train_loss_average in history.csv: every mini-batch of a worker
    has the weight 1 - decay; mean over workers. null: no column."""

    notify: str | None = Field(None, examples=['mail -s "$NNLO_MESSAGE" me@example.org < /dev/null'])
    """Shell command that is run at the end of the experiment, and when a training fails or is preempted, with
    NNLO_EVENT, NNLO_MESSAGE and NNLO_FOLDER in its environment; its failure changes nothing. Write a token as
    `${VARIABLE}`. null: no command."""

    @property
    def missing_packages(self) -> dict[str, str]:
        """Error message with the remedy for each key whose package is not installed."""
        # find_spec locates the package without importing it.
        return {
            key: f"{package} is not installed; pip install 'nnlo[{key}]' (or {package}), or set `observe.{key}: false`"
            for key, package in LOGGERS.items()
            if getattr(self, key) and find_spec(package) is None
        }
