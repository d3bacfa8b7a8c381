"""Number types of a training: parameters, mixed precision and loss scaling."""

import math
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from nnlo_lib.core.errors import DivergedError

NETWORKS = "generator", "critic"  # networks of a GAN, which the problem calls separately
HALF_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
# torch's defaults: exponent of the first loss scale, and steps without overflow until it doubles.
INITIAL_SCALE_EXPONENT, GROWTH_INTERVAL = 16, 2000
REDUCE_RATE = "reduce train.optimizer.lr (for prox_pda, set a larger algorithm.beta)"


def parameter_dtype(name: str) -> torch.dtype:
    """Return the dtype of the parameters for a value of `train.precision`."""
    return torch.float64 if name == "float64" else torch.float32


class Precision:
    """Dtype of parameters and gradients, autocast of forward passes, and loss scaling, of a value of `train.precision`."""

    def __init__(self, name: str, device: str) -> None:
        self.dtype = parameter_dtype(name)
        self._low, self._kind = HALF_DTYPES.get(name), torch.device(device).type
        self.scale = LossScale() if name == "fp16" else None

    def largest(self, kind: str) -> float:
        """Return the largest number of the type in which layers compute, for `inputs`, or losses, for `targets`."""
        return torch.finfo((self._low if kind == "inputs" else None) or self.dtype).max

    def prepare(self, module: nn.Module) -> nn.Module:
        """Convert a model to the dtype; in mixed precision, its outputs to float32 for losses and metrics."""
        # Losses and metrics of half-precision outputs would be rounded to 8 or 11 bits.
        networks = (module, *(getattr(module, name, None) for name in NETWORKS)) if self._low else ()
        for network in filter(None, networks):
            network.register_forward_hook(lambda network, inputs, outputs: _widened(outputs))
        return module.to(self.dtype)

    def autocast_context(self) -> AbstractContextManager[object]:
        """Return torch's autocast for a forward pass and its loss; no cast without mixed precision."""
        return torch.autocast(self._kind, self._low) if self._low else nullcontext()

    def loss_factor(self, loss: float, where: str, advice: str = REDUCE_RATE) -> float:
        """Return the factor by which to multiply a loss of this value before its backward pass.

        If the loss is not finite, the factor is NaN with loss scaling, so that the step is skipped; without, raise DivergedError.
        """
        if self.scale is None:
            if not math.isfinite(loss):
                raise diverged_error(loss, where, advice)
            return 1.0
        # A NaN gradient reaches all ranks in the exchange, so that all of them skip the step.
        return self.scale.value if math.isfinite(loss) else math.nan

    def unscale(self, grad: Tensor, where: str) -> bool:
        """Remove the loss scale from `grad` after its exchange; return False if the step must be skipped."""
        return self.scale is None or self.scale.unscale(grad, where)

    def state(self) -> dict[str, Tensor]:
        """Return the tensors that a resumed run needs."""
        return {} if self.scale is None else {"precision.scale": self.scale.state()}

    def load_state(self, tensors: dict[str, Tensor]) -> None:
        """Restore the tensors that `state` returned."""
        if self.scale is not None:
            self.scale.load_state(tensors["precision.scale"])


def _widened(outputs: Any) -> Any:
    """Return outputs with half-precision tensors as float32, also in nested dicts, lists, tuples."""
    if isinstance(outputs, Tensor):
        return outputs.float() if outputs.dtype in HALF_DTYPES.values() else outputs
    if isinstance(outputs, dict):
        return {name: _widened(each) for name, each in outputs.items()}
    return type(outputs)(map(_widened, outputs)) if type(outputs) in (list, tuple) else outputs


class LossScale:
    """Dynamic loss scaling, so that small gradients do not underflow in fp16.

    The loss is multiplied by 2^exponent. If a gradient overflows, the step is skipped and the scale is
    halved; after 2000 steps without overflow, it doubles. Micikevicius et al., Mixed Precision Training,
    2018, section 3.2. Powers of two are exact. Ranks that exchange gradients get the same gradient and
    therefore keep the same scale.
    """

    def __init__(self) -> None:
        self.exponent, self._good = INITIAL_SCALE_EXPONENT, 0

    @property
    def value(self) -> float:
        """Factor by which the loss is multiplied."""
        return float(2**self.exponent)

    def unscale(self, grad: Tensor, where: str) -> bool:
        """Divide `grad` by the scale and adapt the scale; return False and keep `grad` if it is not finite.

        Raises DivergedError if `grad` is not finite at a scale of 1.
        """
        if not torch.isfinite(grad).all():
            if self.exponent == 0:
                raise DivergedError(
                    f"the gradient overflows {where} even at a loss scale of 1; reduce train.optimizer.lr, or set "
                    "train.precision: bf16, which has the range of float32"
                )
            self.exponent, self._good = self.exponent - 1, 0
            return False
        grad.mul_(1 / self.value)
        self._good += 1
        if self._good == GROWTH_INTERVAL:
            self.exponent, self._good = self.exponent + 1, 0
        return True

    def state(self) -> Tensor:
        """Return the exponent and the number of steps since its last change, (2,) of int64."""
        return torch.tensor([self.exponent, self._good])

    def load_state(self, state: Tensor) -> None:
        """Restore the tensor that `state` returned."""
        self.exponent, self._good = state.tolist()


def diverged_error(loss: float, where: str, advice: str) -> DivergedError:
    """Return the error of a loss that is infinite or NaN `where` in the run; `advice`: what to do."""
    return DivergedError(f"the loss became {loss} {where}; {advice}")
