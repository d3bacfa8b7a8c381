"""How the learning rate begins."""

from typing import Self

from pydantic import Field, model_validator

from nnlo_lib.config.strict import Strict, refuse


class WarmUp(Strict):
    """From a fraction of the schedule's rate to all of it, in equal steps (Goyal et al. 2017, arXiv:1706.02677)."""

    steps: int | None = Field(None, ge=1, examples=[500], description="How many steps of a worker.")
    epochs: float | None = Field(None, gt=0, description="Or how many epochs.")
    start: float = Field(
        0.1, ge=0, le=1, description="Fraction in the first step (Goyal et al. and PyDTNN: 1 / workers)."
    )

    @model_validator(mode="after")
    def _one_length(self) -> Self:
        if (self.steps is None) == (self.epochs is None):
            refuse("say either steps or epochs", "steps")
        return self
