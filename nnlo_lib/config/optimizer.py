"""The update rules of a replica."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from nnlo_lib.config.strict import Strict, refuse


class SGD(Strict):
    """Stochastic gradient descent, with momentum (Sutskever et al. 2013)."""

    name: Literal["sgd"] = "sgd"
    lr: float = Field(0.01, gt=0, description="Learning rate.")
    momentum: float = Field(0.0, ge=0, lt=1, description="Momentum.")
    nesterov: bool = Field(False, description="Nesterov's momentum.")
    weight_decay: float = Field(0.0, ge=0, description="L2 penalty added to the gradient.")

    @model_validator(mode="after")
    def _nesterov_needs_momentum(self) -> Self:
        if self.nesterov and self.momentum == 0:
            refuse("nesterov needs momentum > 0", "nesterov")
        return self


class Adam(Strict):
    """Adam (Kingma and Ba 2015)."""

    name: Literal["adam"] = "adam"
    lr: float = Field(0.001, gt=0, description="Learning rate.")
    beta1: float = Field(0.9, ge=0, lt=1, description="Decay of the first moment.")
    beta2: float = Field(0.999, ge=0, lt=1, description="Decay of the second moment.")
    epsilon: float = Field(1e-8, gt=0, description="Added to the root of the second moment.")
    weight_decay: float = Field(0.0, ge=0, description="L2 penalty added to the gradient.")


class RMSprop(Strict):
    """RMSprop (Tieleman and Hinton 2012)."""

    name: Literal["rmsprop"] = "rmsprop"
    lr: float = Field(0.001, gt=0, description="Learning rate.")
    rho: float = Field(0.9, ge=0, lt=1, description="Decay of the squared gradient.")
    momentum: float = Field(0.0, ge=0, lt=1, description="Momentum.")
    epsilon: float = Field(1e-8, gt=0, description="Added to the root of the squared gradient.")
    weight_decay: float = Field(0.0, ge=0, description="L2 penalty added to the gradient.")


class Adadelta(Strict):
    """Adadelta (Zeiler 2012)."""

    name: Literal["adadelta"] = "adadelta"
    lr: float = Field(1.0, gt=0, description="Factor on the update.")
    rho: float = Field(0.95, ge=0, lt=1, description="Decay of the squared gradient and update.")
    epsilon: float = Field(1e-6, gt=0, description="Added under both roots.")
    weight_decay: float = Field(0.0, ge=0, description="L2 penalty added to the gradient.")


Optimizer = Annotated[SGD | Adam | RMSprop | Adadelta, Field(discriminator="name")]
