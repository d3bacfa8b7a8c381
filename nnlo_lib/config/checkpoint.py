"""When a run is saved, and which checkpoints are kept."""

import re
from typing import Annotated, Any

from pydantic import Field, field_validator

from nnlo_lib.config.base import ConfigModel, raise_config_error

SECONDS = {"s": 1, "min": 60, "h": 3600}
INTERVAL = r"^[1-9]\d* (s|min|h|steps?|epochs?)$"
Interval = Annotated[
    str,
    Field(
        pattern=INTERVAL,
        examples=["30 s", "5 min", "2 h", "100 steps", "1 epoch"],
    ),
]


class CheckpointConfig(ConfigModel):
    """When a run is saved, and which checkpoints are kept. A signal and the end of the run save in any case."""

    every: Interval = Field(
        "5 min",
        description="A number and s, min, h, steps or epochs: what a killed run loses at most. Seconds are real ones; "
        "simulated ranks look at the clock at the end of each epoch only.",
    )
    keep: int = Field(2, ge=1, description="Newest checkpoints kept in state/.")
    keep_every: int | None = Field(
        None, ge=1, description="Keeps every so many-th checkpoint for good; null: none."
    )
    best: str | None = Field(
        None,
        examples=["loss"],
        description="Keeps the checkpoint that validates best by this, the loss or a metric, and saves at the end of each epoch; null: none.",
    )

    @field_validator("every", mode="before")
    @classmethod
    def _is_interval(cls, every: Any) -> Any:
        if not re.match(INTERVAL, str(every)):
            raise_config_error(
                "must be a whole number above 0, a space, and s, min, h, steps or epochs, such as 5 min, 100 steps or "
                f"1 epoch; not {every}"
            )
        return every

    @field_validator("best")
    @classmethod
    def _without_prefix(cls, best: str | None) -> str | None:
        """Read `val_loss`, as other keys call it."""
        return best and best.removeprefix("val_")

    @property
    def seconds(self) -> float | None:
        """Seconds from one to the next, if time counts."""
        return self._amount * SECONDS[self._unit] if self._unit in SECONDS else None

    @property
    def steps(self) -> int | None:
        """Steps from one to the next, if steps count."""
        return self._amount if self._unit.startswith("step") else None

    @property
    def epochs(self) -> int | None:
        """Epochs from one to the next, if epochs count."""
        if self._unit.startswith("epoch"):
            return self._amount
        return 1 if self.best else None

    @property
    def _amount(self) -> int:
        return int(self.every.split()[0])

    @property
    def _unit(self) -> str:
        return self.every.split()[1]
