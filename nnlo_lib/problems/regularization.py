"""Penalties that a model adds to the loss, such as the regularizers of Keras."""

from torch import Tensor, nn

from nnlo_lib.core.errors import UserError


def regularization_loss(module: nn.Module) -> Tensor | None:
    """Return what the method `regularization_loss` of a model returns, a scalar; None if it has no such method.

    It is called after a forward pass, so that it may depend on the last outputs.
    """
    method = getattr(module, "regularization_loss", None)
    penalty: Tensor | None = method() if method else None
    return penalty


def refuse_regularization(module: nn.Module, reason: str) -> None:
    """Raise UserError if a model adds a penalty to the loss, which would be ignored; after a forward pass.

    Args:
        module: the model.
        reason: what would ignore the penalty, and what to do.
    """
    if regularization_loss(module) is not None:
        raise UserError(f"the model has a regularization loss, {reason}")
