"""Cause of a loss that is infinite or NaN: the samples, the initial weights, or the learning rate."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from nnlo_lib.core.errors import DivergedError
from nnlo_lib.data.readers import Indices
from nnlo_lib.train.replica.precision import REDUCE_RATE, Precision

LARGE_VALUE = 100.0  # inputs and targets above it need small learning rates


@dataclass(frozen=True)
class SampleTensors:
    """Samples of a loss.

    Attributes:
        inputs: normalized inputs, (samples, ...) each.
        labels: labels, (samples, ...).
        ids: (samples,) indices of the samples in the training split.
    """

    inputs: tuple[Tensor, ...]
    labels: Tensor
    ids: Indices

    def numbers(self) -> Iterator[tuple[str, Tensor]]:
        """Yield the name and the tensor of inputs and targets; classes and other indices have no scale."""
        yield from (("inputs", each) for each in self.inputs if each.is_floating_point())
        if self.labels.is_floating_point():
            yield "targets", self.labels


def loss_advice(samples: SampleTensors, precision: Precision, theta: Tensor, step: int, where: str) -> str:
    """Return what to do about a loss that is infinite or NaN although each value of its samples is usable.

    Args:
        samples: samples of the loss.
        precision: number types of the model.
        theta: parameters of the model.
        step: number of steps before this one; after 0 steps, the learning rate is not the cause.
        where: place in the run.

    Raises:
        DivergedError: with the first sample that has a value which the model's type cannot hold.
    """
    _refuse_unusable_values(samples, precision, where)
    large = " and ".join(
        f"{kind} up to {tensor.abs().max().item():.3g}"
        for kind, tensor in samples.numbers()
        if tensor.numel() and tensor.abs().max() > LARGE_VALUE
    )
    scale = f"scale the samples, which have {large} (for inputs, data.normalize: standard)" if large else ""
    if step:
        return f"{scale}, or {REDUCE_RATE}" if scale else REDUCE_RATE
    if not torch.isfinite(theta).all():
        return "the initial weights have NaN or infinite values; check the model and model.weights"
    return (
        f"no step was made, so train.optimizer.lr is not the cause; {scale or 'check the model and the loss'}"
    )


def _refuse_unusable_values(samples: SampleTensors, precision: Precision, where: str) -> None:
    for kind, tensor in samples.numbers():
        limit = precision.largest_input if kind == "inputs" else precision.largest_target
        values = tensor.reshape(len(samples.ids), -1)
        # NaN compares as False.
        wrong = ~(values.abs() <= limit)
        for row in torch.nonzero(wrong.any(1)).flatten().tolist()[:1]:
            raise DivergedError(
                f"sample {samples.ids[row]} of the training split has the value {values[row][wrong[row]][0].item():.6g} "
                f"in its {kind} after normalization {where}; the type of the model ends at {limit:.5g}; correct or "
                f"remove the sample, or scale its values"
            )
