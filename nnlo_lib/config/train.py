"""How long and how fast one replica learns."""

from typing import Literal

from pydantic import Field

from nnlo_lib.config.optimizer import SGD, Optimizer
from nnlo_lib.config.schedule import Constant, Schedule
from nnlo_lib.config.strict import Strict


class Train(Strict):
    """How long and how fast one replica learns."""

    epochs: int = Field(10, ge=1, description="Passes over the training samples.")
    steps_per_epoch: int | None = Field(
        None, ge=1, description="Ends an epoch after so many steps; null: when every sample was used once."
    )
    batch_size: int = Field(64, ge=1, description="Samples per step and worker.")
    dealing: Literal["static", "dynamic"] = Field(
        "static",
        description="Which worker takes which batch: the same number each, known beforehand, or the epoch's next one "
        "whenever a worker has time, so that none waits for a slower one (asynchronous algorithms).",
    )
    optimizer: Optimizer = Field(
        SGD(momentum=0.9), description="Update rule: sgd, adam, rmsprop or adadelta."
    )
    schedule: Schedule = Field(
        Constant(),
        description="Learning rate from round to round (a round is a step, or what the algorithm calls one): "
        "constant, linear, log or diminishing.",
    )
