"""Settings of tracing, monitoring and profiling."""

from importlib.util import find_spec
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from nnlo_lib.config.base import ConfigModel

ProfilerTool = Literal["torch", "cprofile"]


class ProfileConfig(ConfigModel):
    """A profiler for some steps of one rank."""

    tool: ProfilerTool = Field(
        "torch", description="torch: operators, as a table and a Chrome trace; cprofile: Python functions."
    )
    rank: int = Field(
        0, ge=0, description="The profiled rank; a server is profiled until its first pause, not by steps."
    )
    first: int = Field(10, ge=1, description="First profiled step, counted from 1.")
    steps: int = Field(20, ge=1, description="Number of profiled steps.")


def _by_name(value: Any) -> Any:
    return {"tool": value} if isinstance(value, str) else value


class ObserveConfig(ConfigModel):
    """Tracing, monitoring and profiling of a run, without effect on the result; see docs/guides/observe.md."""

    trace: bool = Field(
        False,
        description="Record every phase of every step of all ranks in trace.json; false: only coarse phases.",
    )
    monitor: float | None = Field(
        None,
        ge=0.05,
        description="Seconds between two measurements of CPUs, memory and GPUs in monitor.csv; null: no measurements.",
    )
    profile: Annotated[
        ProfileConfig | None,
        BeforeValidator(_by_name, json_schema_input_type=ProfileConfig | ProfilerTool | None),
    ] = Field(
        None,
        description="Profiler for some steps: torch, cprofile, or a section with more settings; null: no profiler.",
    )
    tensorboard: bool = Field(
        False,
        description="Write the history as TensorBoard event files to the run's folder; requires nnlo[tensorboard].",
    )
    nnlo_history: bool = Field(
        False,
        description="Write the history also as nnlo_history.json in the format of NNLO's <model>_<trial>_history.json, for "
        "its plotting scripts.",
    )

    consensus_matrix: bool = Field(
        False,
        description="Write the L2 distance of every pair of nodes at each validation to consensus.npz, and show the "
        "last one in the report; only for algorithms whose nodes have their own models.",
    )
    sample_metrics: bool = Field(
        False,
        description="Write loss and metrics of each validation sample, for each node's own model, at each validation "
        "to validation_metrics.npz; each validation then evaluates twice.",
    )
    loss_average: float | None = Field(
        None,
        ge=0,
        lt=1,
        examples=[0.98],
        description="Decay of the moving average of the training loss, train_loss_average in history.csv: every "
        "mini-batch of a worker has the weight 1 - decay; mean over workers. null: no column.",
    )

    @property
    def missing_package(self) -> str | None:
        """Error message with the remedy if a required package is not installed, else None."""
        # find_spec locates the package without importing it.
        if self.tensorboard and find_spec("tensorboardX") is None:
            return (
                "tensorboardX is not installed; pip install 'nnlo[tensorboard]' (or tensorboardX), "
                "or set `observe.tensorboard: false`"
            )
        return None
