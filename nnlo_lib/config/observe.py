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
