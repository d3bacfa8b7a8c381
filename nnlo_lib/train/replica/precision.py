"""The numbers that a training computes with."""

import math
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from nnlo_lib.core.errors import DivergedError

NETWORKS = "generator", "critic"  # of a gan, which are called one by one
HALF_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
INITIAL_SCALE_EXPONENT, GROWTH_INTERVAL = (
    16,
    2000,
)  # exponent of the first scale, and steps after which it doubles: torch's


def parameter_dtype(name: str) -> torch.dtype:
    """Return the type of the parameters."""
    return torch.float64 if name == "float64" else torch.float32


class Precision:
    """The type of parameters and gradients, what forward passes are cast to, and how losses are scaled.

    name: as in `train.precision`.
    """

    def __init__(self, name: str, device: str) -> None:
        self.dtype = parameter_dtype(name)
        self._low, self._kind = HALF_DTYPES.get(name), torch.device(device).type
        self.scale = LossScale() if name == "fp16" else None

    def prepare(self, module: nn.Module) -> nn.Module:
        """Give a model this type; in mixed precision what it answers is float32 again, for losses and metrics."""
        networks = (module, *(getattr(module, name, None) for name in NETWORKS)) if self._low else ()
        for network in filter(None, networks):
            network.register_forward_hook(lambda network, inputs, outputs: _widened(outputs))
        return module.to(self.dtype)

    def autocast_context(self) -> AbstractContextManager[object]:
        """Cast what is safe to cast, in a forward pass and its loss."""
        return torch.autocast(self._kind, self._low) if self._low else nullcontext()

    def loss_factor(self, loss: float, where: str) -> float:
        """Return what to multiply a loss of this value by before its backward pass; not a number to have its step skipped.

        Raises DivergedError if the loss is not finite and no step can be skipped.
        """
        if self.scale is None:
            check_finite_loss(loss, where)
            return 1.0
        return self.scale.value if math.isfinite(loss) else math.nan

    def unscale(self, grad: Tensor, where: str) -> bool:
        """Make `grad`, as it came from the exchange, that of the loss; return False if its step is to be skipped."""
        return self.scale is None or self.scale.unscale(grad, where)

    def state(self) -> dict[str, Tensor]:
        """Return what a resumed run needs."""
        return {} if self.scale is None else {"precision.scale": self.scale.state()}

    def load_state(self, tensors: dict[str, Tensor]) -> None:
        """Restore what `state` returned."""
        if self.scale is not None:
            self.scale.load_state(tensors["precision.scale"])


def _widened(outputs: Any) -> Any:
    """Return float32 for half precision, in whatever a model returns."""
    if isinstance(outputs, Tensor):
        return outputs.float() if outputs.dtype in HALF_DTYPES.values() else outputs
    if isinstance(outputs, dict):
        return {name: _widened(each) for name, each in outputs.items()}
    return type(outputs)(map(_widened, outputs)) if type(outputs) in (list, tuple) else outputs


class LossScale:
    """Dynamic loss scaling: small gradients, too, are numbers that fp16 has.

    The loss is multiplied by 2^exponent. Where a gradient overflows, the step is skipped and the scale halved; after
    2000 steps without, it doubles. Micikevicius et al., Mixed Precision Training, 2018, section 3.2. Powers of two are
    exact. Ranks that exchange gradients see the same one and so keep the same scale.
    """

    def __init__(self) -> None:
        self.exponent, self._good = INITIAL_SCALE_EXPONENT, 0

    @property
    def value(self) -> float:
        """What the loss is multiplied by."""
        return float(2**self.exponent)

    def unscale(self, grad: Tensor, where: str) -> bool:
        """Divide `grad` by the scale and adapt it; return False, with `grad` as it was, if that is not finite.

        Raises DivergedError if it is not finite although the scale has come down to 1.
        """
        if not torch.isfinite(grad).all():
            self._shrink(where)
            return False
        grad.mul_(1 / self.value)
        self._good += 1
        if self._good == GROWTH_INTERVAL:
            self.exponent, self._good = self.exponent + 1, 0
        return True

    def _shrink(self, where: str) -> None:
        if self.exponent == 0:
            raise DivergedError(
                f"the gradient overflows {where} at a loss scale of 1, too; a smaller train.optimizer.lr or "
                "train.precision: bf16, whose numbers reach as far as float32's, usually helps"
            )
        self.exponent, self._good = self.exponent - 1, 0

    def state(self) -> Tensor:
        """Return exponent and steps since it last changed, (2,) of int64."""
        return torch.tensor([self.exponent, self._good])

    def load_state(self, state: Tensor) -> None:
        """Restore what `state` returned."""
        self.exponent, self._good = state.tolist()


def check_finite_loss(loss: float, where: str) -> None:
    """Raise DivergedError if the loss is infinite or not a number."""
    if not math.isfinite(loss):
        raise DivergedError(
            f"the loss became {loss} {where}; a smaller train.optimizer.lr (prox_pda: a larger algorithm.beta) usually helps"
        )
