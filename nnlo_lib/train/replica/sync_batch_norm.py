"""Batch normalization over the samples of all ranks."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from nnlo_lib.comm.communicator import Communicator


class PassCollectives:
    """Sums over ranks that a pass requests while it runs; all ranks request the same sums in the same order.

    Only for ranks that are processes: simulated ranks share torch's state of one thread (whether gradients are
    recorded, autocast, the autograd engine's queue), and none of them can pause in the middle of a pass.
    """

    def __init__(self, comm: Communicator) -> None:
        self._comm, self.weight = comm, 1.0  # this rank's share of the samples of the step

    def allreduce(self, vector: Tensor) -> None:
        """Overwrite `vector` (values,) with the sum over ranks."""
        self._comm.allreduce(vector, "statistics")


class SyncBatchNorm(_BatchNorm):
    """Batch normalization by the mean and variance of all ranks' samples together.

    y = (x - mean) / sqrt(variance + eps) weight + bias    per channel; Ioffe and Szegedy 2015, over the global batch

    Ranks exchange float64 sums, two vectors per step: 2 C + 1 values in the forward and 2 C in the backward
    pass. Squares are summed about the rank's own mean before the exchange. Evaluation and running statistics
    work as in `like`, whose parameters and buffers are shared.
    """

    def __init__(self, like: _BatchNorm, together: PassCollectives) -> None:
        nn.Module.__init__(self)
        # The settings of `like`, whatever its class; parameters and buffers are shared below.
        self.__dict__.update({key: value for key, value in like.__dict__.items() if not key.startswith("_")})
        self._parameters, self._buffers = like._parameters, like._buffers
        self._together = together

    def _check_input_dim(self, input: Tensor) -> None:
        if input.dim() < 2:
            raise ValueError(f"expected at least 2 dimensions, not {input.dim()}")

    def forward(self, input: Tensor) -> Tensor:
        if not self.training:
            return super().forward(input)
        self._check_input_dim(input)
        values = input if input.dtype in (torch.float32, torch.float64) else input.float()
        with torch.no_grad():
            sums = local_sums(values)
        self._together.allreduce(sums)
        count, mean, variance = global_statistics(sums)
        if values.numel() or count:  # Both may be 0 if a batch has fewer samples than parts.
            self._remember(count, mean, variance)
        scale = torch.rsqrt(variance + self.eps).to(values.dtype)
        args = values, self.weight, self.bias, mean.to(values.dtype), scale
        output: Tensor = _SyncBatchNormFunction.apply(*args, count, self._together)  # type: ignore[no-untyped-call]
        return output.to(input.dtype)

    @torch.no_grad()
    def _remember(self, count: Tensor, mean: Tensor, variance: Tensor) -> None:
        """Update the running statistics as torch does, with the unbiased variance."""
        if self.running_mean is None or self.running_var is None or self.num_batches_tracked is None:
            return
        self.num_batches_tracked.add_(1)
        momentum = self.momentum if self.momentum is not None else 1 / float(self.num_batches_tracked)
        unbiased = variance * (count / (count - 1).clamp(min=1))
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), momentum)
        self.running_var.lerp_(unbiased.to(self.running_var.dtype), momentum)


def local_sums(values: Tensor) -> Tensor:
    """Return [count, sum of each channel, sum of squares of each channel] of (N, C, ...), (1 + 2 C,) of float64."""
    others = [axis for axis in range(values.dim()) if axis != 1]
    count = values.numel() // values.shape[1]
    total = values.sum(others, dtype=torch.float64)
    mean = total / max(count, 1)
    # Squares about 0 would lose the variance in float32 if the mean is large.
    centered = values - _along(mean.to(values.dtype), values)
    spread = centered.square_().sum(others, dtype=torch.float64)
    return torch.cat([total.new_tensor([count]), total, spread + total * mean])


def global_statistics(sums: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return (count, mean, variance) of each channel, float64, for the sum over ranks of `local_sums`."""
    count = sums[0]
    mean, square = (sums[1:] / count).chunk(2)
    # Rounding may make the difference slightly negative.
    return count, mean, (square - mean.square()).clamp_(min=0)


def _along(vector: Tensor, values: Tensor) -> Tensor:
    return vector.view(1, -1, *(1,) * (values.dim() - 2))


class _SyncBatchNormFunction(torch.autograd.Function):
    """y = x^ weight + bias with x^ = (x - mean) scale, where mean and scale are functions of all ranks' x.

    dx = weight scale (g - (sum g + x^ sum g x^) / count), over all ranks' samples. g is the gradient of a
    rank's own mean loss; the sums over ranks use the same weights for it as the exchange of gradients.
    """

    @staticmethod
    def forward(
        ctx: Any, values: Tensor, weight: Tensor | None, bias: Tensor | None, mean: Tensor, scale: Tensor, count: Tensor,
        together: PassCollectives,
    ) -> Tensor:  # fmt: skip
        ctx.save_for_backward(values, weight, mean, scale, count)
        ctx.together = together
        output = (values - _along(mean, values)) * _along(scale, values)
        if weight is not None:
            output.mul_(_along(weight, values))
        return output if bias is None else output.add_(_along(bias, values))

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        values, weight, mean, scale, count = ctx.saved_tensors
        others = [axis for axis in range(values.dim()) if axis != 1]
        normal = (values - _along(mean, values)) * _along(scale, values)
        terms = gradient, gradient * normal
        own = torch.stack([each.sum(others, dtype=torch.float64) for each in terms])
        share = ctx.together.weight
        totals = (own * share).view(-1)
        ctx.together.allreduce(totals)
        # The exchange of gradients multiplies by `share` later, so the sums over ranks are divided by it here. A
        # rank without samples has share 0.
        first, second = (totals / (count * (share or 1.0))).to(values.dtype).chunk(2)
        inner = gradient - _along(first, values) - normal * _along(second, values)
        factor = scale if weight is None else scale * weight
        to_bias, to_weight = own.to(values.dtype)
        return (
            inner.mul_(_along(factor, values)),
            None if weight is None else to_weight,
            to_bias if ctx.needs_input_grad[2] else None,
            None, None, None, None,
        )  # fmt: skip


def convert_sync_batch_norm(module: nn.Module, together: PassCollectives | None) -> nn.Module:
    """Replace each batch normalization in `module`, in place, by SyncBatchNorm; keep names and parameters."""
    if together is None:
        return module
    for name, child in module.named_children():
        if isinstance(child, _BatchNorm):
            setattr(module, name, SyncBatchNorm(child, together))
        else:
            convert_sync_batch_norm(child, together)
    return SyncBatchNorm(module, together) if isinstance(module, _BatchNorm) else module
