"""AlexNet (Krizhevsky et al. 2012), as published and in one tower (Krizhevsky 2014, arXiv 1404.5997)."""

from torch import nn

from nnlo_lib.models.blocks import dense_relu, he_normal, image_shape, is_small

LEAST = 67  # minimum side in pixels; below it, the last pooling has no input


def alexnet(shape: tuple[int, ...], classes: int, dropout: float = 0.5) -> nn.Module:
    """Build the one-tower network (61,100,840 parameters for ImageNet at 224 pixels).

    For small images, the first kernels and poolings are small, as in PyDTNN (23,272,266 parameters for
    CIFAR-10).

    Args:
        shape: channels, height and width of a sample.
        classes: number of outputs.
        dropout: probability of dropout before or after each hidden dense layer.
    """
    shape = image_shape(shape, 16, "alexnet")
    filters = (64, 192, 384, 256, 256)
    if not is_small(shape):
        features = [*_features(shape[0], filters, padding=2), nn.AdaptiveAvgPool2d(6)]
        return he_normal(nn.Sequential(*features, nn.Flatten(), *_perceptron(256 * 36, classes, dropout)))
    # The first stride and the three poolings halve the sides four times.
    inputs = 256 * (shape[1] // 16) * (shape[2] // 16)
    last = _perceptron(inputs, classes, dropout, first=False)
    return he_normal(nn.Sequential(*_small_features(shape[0], filters), nn.Flatten(), *last))


def alexnet_2012(
    shape: tuple[int, ...], classes: int, dropout: float = 0.5, groups: int = 2, normalize: bool = True
) -> nn.Module:
    """Build the first AlexNet, for 227 pixels (60,965,224 parameters), as in Theano-MPI.

    With `groups` 1 and without `normalize`, it is PyDTNN's AlexNet (62,378,344 parameters).

    Args:
        shape: channels, height and width of a sample.
        classes: number of outputs.
        dropout: probability of dropout after each hidden dense layer.
        groups: number of independent towers in layers 2, 4 and 5.
        normalize: normalize across channels after layers 1 and 2.
    """
    filters = (96, 256, 384, 384, 256)
    features = _features(image_shape(shape, LEAST, "alexnet_2012")[0], filters, 0, groups, normalize)
    last = _perceptron(256 * 36, classes, dropout, first=False)
    return he_normal(nn.Sequential(*features, nn.AdaptiveAvgPool2d(6), nn.Flatten(), *last))


def _features(
    channels: int, filters: tuple[int, ...], padding: int, groups: int = 1, normalize: bool = False
) -> list[nn.Module]:
    one, two, three, four, five = filters
    # n, alpha, beta and k of section 3.3 of the paper (torch divides alpha by n).
    across = [nn.LocalResponseNorm(5, 1e-4, 0.75, 2.0)] if normalize else []
    return [
        nn.Conv2d(channels, one, 11, stride=4, padding=padding), nn.ReLU(), *across, nn.MaxPool2d(3, 2),
        nn.Conv2d(one, two, 5, padding=2, groups=groups), nn.ReLU(), *across, nn.MaxPool2d(3, 2),
        nn.Conv2d(two, three, 3, padding=1), nn.ReLU(),
        nn.Conv2d(three, four, 3, padding=1, groups=groups), nn.ReLU(),
        nn.Conv2d(four, five, 3, padding=1, groups=groups), nn.ReLU(), nn.MaxPool2d(3, 2),
    ]  # fmt: skip


def _small_features(channels: int, filters: tuple[int, ...]) -> list[nn.Module]:
    one, two, three, four, five = filters
    return [
        nn.Conv2d(channels, one, 3, stride=2, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(one, two, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(two, three, 3, padding=1), nn.ReLU(),
        nn.Conv2d(three, four, 3, padding=1), nn.ReLU(),
        nn.Conv2d(four, five, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
    ]  # fmt: skip


def _perceptron(inputs: int, classes: int, dropout: float, first: bool = True) -> list[nn.Module]:
    """Build two hidden dense layers of 4096 units and the last layer.

    Args:
        inputs: number of inputs.
        classes: number of outputs.
        dropout: probability of dropout.
        first: True: dropout before each hidden layer; False: after it.
    """
    hidden = [dense_relu(inputs, 4096), dense_relu(4096, 4096)]
    drop = nn.Dropout(dropout)
    blocks = [[drop, *block] if first else [*block, drop] for block in hidden]
    return [layer for block in blocks for layer in block] + [nn.Linear(4096, classes)]
