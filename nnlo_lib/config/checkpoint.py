"""Settings of checkpoints."""

import re
from typing import Annotated, Any

from pydantic import Field, field_validator

from nnlo_lib.config.base import ConfigModel, raise_config_error
from nnlo_lib.config.duration import SECONDS_OF_UNIT
from nnlo_lib.config.stopping import BestCheckpointConfig

INTERVAL = r"^[1-9]\d* (s|min|h|steps?|epochs?)$"
Interval = Annotated[
    str,
    Field(
        pattern=INTERVAL,
        examples=["30 s", "5 min", "2 h", "100 steps", "1 epoch"],
    ),
]


class CheckpointConfig(ConfigModel):
    """Interval of checkpoints, and the checkpoints that are kept. A signal and the end of the run also save one."""

    every: Interval = Field(
        "5 min",
        description="Interval of checkpoints, the maximum loss of a killed run: a number and s, min, h, steps or "
        "epochs. Time is real time. Simulated ranks check it only at the end of each epoch; with asynchronous algorithms, "
        "they check steps there, too.",
    )
    keep: int = Field(2, ge=1, description="Number of newest checkpoints that are kept in state/.")
    keep_every: int | None = Field(
        None, ge=1, description="Keep every n-th checkpoint permanently; null: none."
    )
    best: str | BestCheckpointConfig | None = Field(
        None,
        examples=["loss", {"metric": "val_f1", "better": "larger"}],
        description="Metric, or loss, of validation by which the best checkpoint is kept, or a section with the metric "
        "and its better direction; a checkpoint is then saved at the end of each epoch; null: none.",
    )

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
