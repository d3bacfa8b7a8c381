"""Wide residual networks for CIFAR (Zagoruyko and Komodakis 2016, arXiv 1605.07146)."""

from torch import Tensor, nn

from nnlo_lib.models.blocks import classifier, he_normal, image_shape


class Wide(nn.Module):
    """Batch normalization, ReLU and a 3 x 3 convolution, twice, plus a shortcut.

    Args:
        inputs: number of input channels.
        outputs: number of output channels.
        stride: stride of the first convolution and of the shortcut.
        dropout: probability of dropout between the convolutions.
    """

    def __init__(self, inputs: int, outputs: int, stride: int, dropout: float) -> None:
        super().__init__()
        self.before = nn.Sequential(nn.BatchNorm2d(inputs), nn.ReLU())
        self.body = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False),
        )
        self.shortcut = nn.Conv2d(inputs, outputs, 1, stride, bias=False) if inputs != outputs else None

    def forward(self, inputs: Tensor) -> Tensor:
        """Return (samples, outputs, height / stride, width / stride)."""
        active = self.before(inputs)
        # As in the authors' code, a convolution as shortcut takes the activated inputs, the identity the raw
        # ones.
        beside = inputs if self.shortcut is None else self.shortcut(active)
        total: Tensor = self.body(active) + beside
        return total


def wide_resnet(
    shape: tuple[int, ...], classes: int, depth: int = 28, widen: int = 10, dropout: float = 0.0
) -> nn.Module:
    """Build WRN-depth-widen (28-10: 36,479,194 parameters for CIFAR-10); Theano-MPI's is 28-4 with dropout 0.3.

    Args:
        shape: channels, height and width of a sample.
        classes: number of outputs.
        depth: number of layers, 6 n + 4.
        widen: factor of the number of filters.
        dropout: probability of dropout between the convolutions of a block.
    """
    if depth % 6 != 4:
        raise ValueError(f"wide_resnet: depth must be 6 n + 4 (16, 22, 28, 40), not {depth}")
    channels = image_shape(shape, 8, "wide_resnet")[0]
    layers: list[nn.Module] = [nn.Conv2d(channels, 16, 3, padding=1, bias=False)]
    inputs = 16
    for stage in range(3):
        outputs = 16 * widen * 2**stage
        for position in range(depth // 6):
            layers.append(Wide(inputs, outputs, 2 if stage and not position else 1, dropout))
            inputs = outputs
    return he_normal(nn.Sequential(*layers, nn.BatchNorm2d(inputs), nn.ReLU(), *classifier(inputs, classes)))
