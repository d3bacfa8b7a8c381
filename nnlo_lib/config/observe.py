"""What is looked at while a run goes on; nothing of it changes the result."""

from importlib.util import find_spec
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from nnlo_lib.config.base import ConfigModel

ProfilerTool = Literal["torch", "cprofile"]


class ProfileConfig(ConfigModel):
    """A profiler over some steps of one rank."""

    tool: ProfilerTool = Field(
        "torch", description="torch: operators, as a table and a Chrome trace; cprofile: Python's functions."
    )
    rank: int = Field(0, ge=0, description="Which rank; a server is profiled until it first pauses.")
    first: int = Field(10, ge=1, description="Number of the first step, counted from 1.")
    steps: int = Field(20, ge=1, description="How many steps.")


def _by_name(value: Any) -> Any:
    return {"tool": value} if isinstance(value, str) else value


class ObserveConfig(ConfigModel):
    """What is looked at while a run goes on; nothing of it changes the result. docs/guides/observe.md says more."""

    trace: bool = Field(
        False,
        description="trace.json tells of every phase of every step, of all ranks; false: of coarse ones only.",
    )
    monitor: float | None = Field(
        None,
        ge=0.05,
        description="Seconds between two looks at processors, memory and GPUs, kept in monitor.csv; null: none.",
    )
    profile: Annotated[
        ProfileConfig | None,
        BeforeValidator(_by_name, json_schema_input_type=ProfileConfig | ProfilerTool | None),
    ] = Field(
        None,
        description="Profiler over some steps: torch or cprofile, or a block that says which; null: none.",
    )
    tensorboard: bool = Field(
        False,
        description="TensorBoard event files of the history in the run's folder; needs nnlo[tensorboard].",
    )

    @property
    def missing_package(self) -> str | None:
        """What is not installed but asked for, as a sentence with the remedy; None if all is there."""
        if self.tensorboard and find_spec("tensorboardX") is None:
            return (
                "tensorboardX is not installed; pip install 'nnlo[tensorboard]' (or tensorboardX), "
                "or leave it out"
            )
        return None
