"""Functions that benchmarks/search.py minimizes: two classical test functions, and a model of a training."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

Point = dict[str, Any]


@dataclass(frozen=True)
class Function:
    """Function to minimize, with its search space.

    Attributes:
        space: search space as in an experiment file.
        value: value at a point, without noise.
        least: minimum of `value`.
        noise: standard deviation of the noise of observations.
    """

    name: str
    space: dict[str, Any]
    value: Callable[[Point], float]
    least: float
    noise: float = 0.0


def branin(point: Point) -> float:
    """Return the Branin function (Dixon and Szegoe 1978), which has three minima of 0.397887."""
    x, y = point["x"], point["y"]
    bowl = y - 5.1 / (4 * math.pi**2) * x**2 + 5 / math.pi * x - 6
    return bowl**2 + 10 * (1 - 1 / (8 * math.pi)) * math.cos(x) + 10


A = np.array(
    [
        [10, 3, 17, 3.5, 1.7, 8],
        [0.05, 10, 17, 0.1, 8, 14],
        [3, 3.5, 1.7, 10, 17, 8],
        [17, 8, 0.05, 10, 0.1, 14],
    ]
)
P = 1e-4 * np.array(
    [
        [1312, 1696, 5569, 124, 8283, 5886],
        [2329, 4135, 8307, 3736, 1004, 9991],
        [2348, 1451, 3522, 2883, 3047, 6650],
        [4047, 8828, 8732, 5743, 1091, 381],
    ]
)


def hartmann(point: Point) -> float:
    """Return the six-dimensional function of Hartmann (1973), whose minimum is -3.32237."""
    x = np.array([point[f"x{i}"] for i in range(6)])
    return float(-np.array([1, 1.2, 3, 3.2]) @ np.exp(-(A * (x - P) ** 2).sum(1)))


# best learning rate, loss at this rate
OPTIMUM = {"sgd": (1e-1, 0.10), "adam": (1e-3, 0.05), "rmsprop": (3e-3, 0.15)}


def training(point: Point) -> float:
    """Return a model of the loss of a training, whose minimum is 0.03.

    The best learning rate depends on the optimizer, and only sgd has a momentum. The loss has a minimum in the
    numbers of layers and units.
    """
    rate, floor = OPTIMUM[point["optimizer"]]
    loss = floor + 0.08 * math.log10(point["lr"] / rate) ** 2
    loss += 0.02 * (point["layers"] - 3) ** 2 + 0.05 * math.log2(point["units"] / 128) ** 2 / 4
    if point["optimizer"] == "sgd":
        loss += 0.4 * (point["momentum"] - 0.9) ** 2 - 0.07
    if point["optimizer"] == "adam":
        loss += 0.1 * abs(math.log10(point["beta"] / 0.02))
    return loss


FUNCTIONS = (
    Function("branin", {"x": {"uniform": [-5, 10]}, "y": {"uniform": [0, 15]}}, branin, 0.39788735772973816),
    Function("hartmann6", {f"x{i}": {"uniform": [0, 1]} for i in range(6)}, hartmann, -3.322368011415515),
    Function(
        "conditional",
        {
            "optimizer": ["sgd", "adam", "rmsprop"],
            "lr": {"log_uniform": [1e-5, 1]},
            "layers": {"integer": [1, 6]},
            "units": {"log_integer": [8, 1024]},
            "momentum": {"uniform": [0, 1], "when": {"optimizer": "sgd"}},
            "beta": {"log_uniform": [1e-3, 1], "when": {"optimizer": "adam"}},
        },
        training,
        0.03,
        noise=0.01,
    ),
)
