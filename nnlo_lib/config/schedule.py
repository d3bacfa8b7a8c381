"""How the learning rate changes from round to round."""

from typing import Annotated, Literal

from pydantic import Field

from nnlo_lib.config.strict import Strict


class Constant(Strict):
    """The same in every round."""

    name: Literal["constant"] = "constant"


class Linear(Strict):
    """In equal steps from the optimizer's `lr` in the first round to `final` in the last."""

    name: Literal["linear"] = "linear"
    final: float = Field(gt=0, examples=[0.0001], description="Learning rate of the last round.")


class Log(Strict):
    """In equal factors from the optimizer's `lr` in the first round to `final` in the last."""

    name: Literal["log"] = "log"
    final: float = Field(gt=0, examples=[0.0001], description="Learning rate of the last round.")


class Diminishing(Strict):
    """lr <- lr (1 - mu lr) from round to round (Di Lorenzo and Scutari 2016; DiNNO's DSGD)."""

    name: Literal["diminishing"] = "diminishing"
    mu: float = Field(gt=0, examples=[0.001], description="How fast it diminishes.")


Schedule = Annotated[Constant | Linear | Log | Diminishing, Field(discriminator="name")]
