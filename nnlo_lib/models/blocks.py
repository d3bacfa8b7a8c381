"""Building blocks of networks: activations by name, image layers, initial weights, 2 x 2 pooling."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

Shape = tuple[int, int, int]  # channels, height, width
Side = int | tuple[int, int]
Network = TypeVar("Network", bound=nn.Module)
ACTIVATIONS = {"relu": nn.ReLU, "elu": nn.ELU, "selu": nn.SELU, "tanh": nn.Tanh, "sigmoid": nn.Sigmoid}
# Below this side in pixels, networks begin with a 3 x 3 convolution instead of ImageNet's stem.
SMALL_IMAGE_SIDE_PX = 64
CORNERS = ((0, 0), (0, 1), (1, 0), (1, 1))


def activation_named(name: str) -> type[nn.Module]:
    """Return the activation class called `name`. Raises ValueError if the name is unknown."""
    if name not in ACTIVATIONS:
        raise ValueError(f"unknown activation '{name}'; use one of {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[name]


def dense_stack(widths: Sequence[int], activation: type[nn.Module] = nn.ReLU) -> list[nn.Module]:
    """Build a dense layer with its activation for each pair of successive widths."""
    return [nn.Sequential(nn.Linear(a, b), activation()) for a, b in pairwise(widths)]


def dense_relu(inputs: int, outputs: int) -> list[nn.Module]:
    """Build a dense layer with weights drawn from N(0, 2 / inputs), and ReLU."""
    linear = nn.Linear(inputs, outputs)
    nn.init.kaiming_normal_(linear.weight, nonlinearity="relu")
    nn.init.zeros_(linear.bias)
    return [linear, nn.ReLU()]


def image_shape(shape: tuple[int, ...], least: int, name: str) -> Shape:
    """Return `shape` if it is the shape of images with sides of at least `least` pixels; else raise ValueError."""
    match shape:
        case (channels, height, width) if min(height, width) >= least:
            return channels, height, width
    raise ValueError(
        f"{name} requires images (channels, height, width) of at least {least} x {least} pixels, but the samples are "
        f"{shape}"
    )


def is_small(shape: Shape) -> bool:
    """Return True if the images are small, like CIFAR's rather than ImageNet's (`SMALL_IMAGE_SIDE_PX`)."""
    return min(shape[1:]) < SMALL_IMAGE_SIDE_PX


def conv_bn(
    inputs: int, outputs: int, kernel: Side, stride: int = 1, padding: Side | None = None
) -> nn.Module:
    """Build a convolution, batch normalization and ReLU; padding None keeps the sides for odd kernels with stride 1."""
    if padding is None:
        padding = kernel // 2 if isinstance(kernel, int) else (kernel[0] // 2, kernel[1] // 2)
    # The normalization subtracts the mean of each channel, which would cancel a bias.
    convolution = nn.Conv2d(inputs, outputs, kernel, stride, padding, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(outputs), nn.ReLU())


def chain(inputs: int, *layers: tuple[int, Side]) -> nn.Sequential:
    """Build `conv_bn` layers from pairs (outputs, kernel); height and width stay the same."""
    widths = [inputs, *(outputs for outputs, _ in layers)]
    return nn.Sequential(*(conv_bn(a, b, kernel) for a, (b, kernel) in zip(widths, layers, strict=False)))


def classifier(inputs: int, classes: int, dropout: float = 0.0) -> nn.Sequential:
    """Build a classifier of (samples, inputs, height, width): global average, dropout, a dense layer."""
    return nn.Sequential(
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(dropout), nn.Linear(inputs, classes)
    )


def he_normal(network: Network) -> Network:
    """Draw convolutions from N(0, 2 / fan out) (He et al. 2015, arXiv 1502.01852); dense layers are unchanged."""
    for layer in network.modules():
        if isinstance(layer, nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
    return network


class Branches(nn.ModuleList):
    """Parallel branches with the same input images; their output channels are concatenated."""

    def forward(self, inputs: Tensor) -> Tensor:
        """Return (samples, sum of the branches' channels, height, width)."""
        return torch.cat([branch(inputs) for branch in self], 1)


class Auxiliary(nn.Module):
    """A classifier with auxiliary classifiers (Szegedy et al. 2015, arXiv 1409.4842, section 5).

    In training mode the result is a tuple: the final scores, then the scores of each auxiliary classifier.
    """

    def __init__(self, parts: Sequence[nn.Module], heads: Sequence[nn.Module], last: nn.Module) -> None:
        super().__init__()
        self.parts, self.heads, self.last = nn.ModuleList(parts), nn.ModuleList(heads), last

    def forward(self, inputs: Tensor) -> Tensor | tuple[Tensor, ...]:
        """Return scores (samples, classes); in training mode, a tuple of scores of that shape."""
        scores = []
        for part, head in zip(self.parts, self.heads, strict=True):
            inputs = part(inputs)
            scores += [head(inputs)] if self.training else []
        last: Tensor = self.last(inputs)
        return (last, *scores) if self.training else last


class PairPool(nn.Module):
    """Equivalent of `MaxPool2d(2)`, faster on CPUs if there are few channels."""

    def forward(self, images: Tensor) -> Tensor:
        """Return (..., height / 2, width / 2), without a last odd row or column."""
        largest: Tensor = _Largest.apply(images)  # type: ignore[no-untyped-call]
        return largest


class _Largest(torch.autograd.Function):
    """Maximum of each 2 x 2 pixels; if pixels are equal, the first takes the gradient, as in torch."""

    @staticmethod
    def forward(context: Any, images: Tensor) -> Tensor:
        """Return (..., height / 2, width / 2)."""
        first, second, third, fourth = (_corner(images, *corner) for corner in CORNERS)
        largest = torch.maximum(torch.maximum(first, second), torch.maximum(third, fourth))
        context.save_for_backward(images, largest)
        return largest

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> Tensor:
        """Route each gradient to the pixel that was the largest."""
        (left,), (images, largest) = gradients, context.saved_tensors
        spread = torch.zeros_like(images)
        # `left` is the gradient that no earlier corner has taken, so that only the first of equal pixels gets
        # it. The last corner gets the rest.
        for corner in CORNERS[:-1]:
            hit = _corner(spread, *corner)
            torch.mul(left, _corner(images, *corner) == largest, out=hit)
            left = left - hit
        _corner(spread, *CORNERS[-1]).copy_(left)
        return spread


def _corner(images: Tensor, row: int, column: int) -> Tensor:
    height, width = images.shape[-2] // 2 * 2, images.shape[-1] // 2 * 2
    return images[..., row:height:2, column:width:2]


def is_pair_pool(layer: nn.Module) -> bool:
    """Return True if a layer is a plain `MaxPool2d(2)`."""
    if type(layer) is not nn.MaxPool2d:
        return False
    rule = (layer.kernel_size, layer.stride, layer.padding, layer.dilation)
    plain = rule in ((2, 2, 0, 1), ((2, 2), (2, 2), (0, 0), (1, 1)))
    return plain and not layer.return_indices and not layer.ceil_mode
