"""DiNNO's network for handwritten digits."""

from torch import nn

from nnlo_lib.models.blocks import image_shape


def conv(
    shape: tuple[int, ...], classes: int, filters: int = 3, kernel: int = 5, width: int = 64
) -> nn.Module:
    """Build one convolution and two dense layers (28,440 parameters for MNIST).

    Pooling comes before ReLU, which yields the same values and gradients for a quarter of the work.

    Args:
        shape: channels, height and width of a sample.
        classes: number of outputs.
        filters: filters of the convolution.
        kernel: side of the kernel, in pixels.
        width: units of the hidden dense layer.
    """
    # Pooling after the convolution leaves at least one pixel.
    channels, *sides = image_shape(shape, kernel + 1, "dinno_conv")
    height, breadth = ((side - kernel + 1) // 2 for side in sides)
    return nn.Sequential(
        nn.Conv2d(channels, filters, kernel),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(filters * height * breadth, width),
        nn.ReLU(),
        nn.Linear(width, classes),
    )
