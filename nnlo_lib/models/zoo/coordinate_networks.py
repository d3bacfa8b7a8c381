"""Networks of coordinates: DiNNO's map of a building, SIREN, perceptrons; DiNNO's network for digits."""

from collections.abc import Sequence
from itertools import pairwise
from math import prod, sqrt

import torch
from torch import Tensor, nn

from nnlo_lib.models.blocks import activation_named, dense_stack, image_shape


class Sine(nn.Module):
    """sin(scale (W x + b)), W drawn from U(-bound, bound) (Sitzmann et al. 2020, arXiv 2006.09661).

    Args:
        scale: factor of the argument of the sine.
        bound: bound of the initial weights.
        phase: bound of the initial phases, scale b; None: that of a linear layer of torch, scale / sqrt(inputs).
    """

    def __init__(
        self, inputs: int, outputs: int, scale: float, bound: float, phase: float | None = None
    ) -> None:
        super().__init__()
        self.linear, self.scale = nn.Linear(inputs, outputs), scale
        nn.init.uniform_(self.linear.weight, -bound, bound)
        if phase is not None:
            nn.init.uniform_(self.linear.bias, -phase / scale, phase / scale)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return (samples, outputs)."""
        return torch.sin(self.scale * self.linear(inputs))


def fourier(
    shape: tuple[int, ...],
    classes: int,
    hidden: Sequence[int] = (256, 64, 64, 64),
    scale: float = 0.05,
    phase: float | None = None,
) -> nn.Module:
    """Build DiNNO's network of positions: a sine layer, then ReLU layers (25,601 parameters for one output).

    The outputs are logits; if `classes` is 0, there is one output. A larger `scale` needs a small `phase` for DiNNO's
    initial phases, which are nearly zero because its positions are pixels.
    """
    first = Sine(prod(shape), hidden[0], scale, sqrt(6 / hidden[0]), phase)
    return nn.Sequential(
        nn.Flatten(), first, nn.ReLU(), *dense_stack(hidden), nn.Linear(hidden[-1], max(classes, 1))
    )


def siren(
    shape: tuple[int, ...], classes: int, hidden: Sequence[int] = (256, 256, 256), omega: float = 30.0
) -> nn.Module:
    """Build SIREN: sines of frequency `omega` in every layer, initial weights as in section 3.2 of the paper.

    If `classes` is 0, there is one output.
    """
    widths = [prod(shape), *hidden]
    bounds = [1 / widths[0], *(sqrt(6 / width) / omega for width in widths[1:])]
    layers = [Sine(a, b, omega, c) for (a, b), c in zip(pairwise(widths), bounds[:-1], strict=True)]
    last = nn.Linear(widths[-1], max(classes, 1))
    nn.init.uniform_(last.weight, -bounds[-1], bounds[-1])
    return nn.Sequential(nn.Flatten(), *layers, last)


def perceptron(
    shape: tuple[int, ...], classes: int, hidden: Sequence[int] = (64, 64, 64), activation: str = "relu"
) -> nn.Module:
    """Build DiNNO's dense networks for reinforcement learning (12 inputs, 5 outputs: 9,477 parameters).

    Tanh and sigmoid are also applied to the outputs, to bound them. If `classes` is 0, there is one output.
    """
    layer = activation_named(activation)
    bounds = [layer()] if activation in ("tanh", "sigmoid") else []
    last = [nn.Linear(hidden[-1], max(classes, 1)), *bounds]
    return nn.Sequential(nn.Flatten(), *dense_stack([prod(shape), *hidden], layer), *last)


def conv(
    shape: tuple[int, ...], classes: int, filters: int = 3, kernel: int = 5, width: int = 64
) -> nn.Module:
    """Build DiNNO's one convolution and two dense layers (28,440 parameters for MNIST).

    Pooling comes before ReLU, which yields the same values and gradients for a quarter of the work.
    """
    # Pooling after the convolution leaves at least one pixel.
    channels, *sides = image_shape(shape, kernel + 1, "dinno_conv")
    height, breadth = ((side - kernel + 1) // 2 for side in sides)
    return nn.Sequential(
        nn.Conv2d(channels, filters, kernel), nn.MaxPool2d(2), nn.ReLU(), nn.Flatten(),
        nn.Linear(filters * height * breadth, width), nn.ReLU(), nn.Linear(width, classes),
    )  # fmt: skip
