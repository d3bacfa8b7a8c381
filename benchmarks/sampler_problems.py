"""Problems of benchmarks/samplers.py: bbob-mixint, classical functions, and tables of real trainings.

The tables are made by `python benchmarks/sampler_tables.py`.
"""

import csv
import gzip
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

Point = dict[str, Any]
TABLES = Path(__file__).parent / "tables"


@dataclass(frozen=True)
class Problem:
    """A function to minimize.

    Attributes:
        space: search space as in an experiment file.
        exact: value at a point, by which a search is judged; infinite where a training fails.
        observe: value that the search sees; it may have noise.
    """

    name: str
    space: dict[str, Any]
    exact: Callable[[Point], float]
    observe: Callable[[Point, np.random.Generator], float]


def ackley(x: np.ndarray) -> float:
    """Return the function of Ackley (1987), shifted so that its minimum is not in the middle of the space."""
    x = x - 7.3
    wells = math.exp(np.cos(2 * math.pi * x).mean())
    return float(20 + math.e - 20 * math.exp(-0.2 * math.sqrt((x**2).mean())) - wells)


def levy(x: np.ndarray) -> float:
    """Return the function of Levy and Montalvo (1985)."""
    w = 1 + (x - 1) / 4
    inner = ((w[:-1] - 1) ** 2 * (1 + 10 * np.sin(math.pi * w[:-1] + 1) ** 2)).sum()
    return float(
        math.sin(math.pi * w[0]) ** 2 + inner + (w[-1] - 1) ** 2 * (1 + math.sin(2 * math.pi * w[-1]) ** 2)
    )


def styblinski(x: np.ndarray) -> float:
    """Return the function of Styblinski and Tang (1990), above its minimum."""
    return float((x**4 - 16 * x**2 + 5 * x).sum() / 2 + 39.16617 * len(x))


def rosenbrock(x: np.ndarray) -> float:
    """Return the function of Rosenbrock (1960)."""
    return float((100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum())


def classical(
    name: str,
    function: Callable[[np.ndarray], float],
    keys: int,
    kind: dict[str, Any],
    noise: float = 0.0,
) -> Problem:
    """Return a problem whose keys all have the same range."""
    space = {f"x{i}": kind for i in range(keys)}

    def exact(point: Point) -> float:
        return function(np.array([float(point[key]) for key in space]))

    return Problem(
        name, space, exact, lambda point, random: exact(point) + noise * float(random.standard_normal())
    )


def mixint(number: int, dimension: int) -> Problem:
    """Return a function of bbob-mixint (Tusar et al. 2019): four fifths of the keys are integers."""
    import cocoex

    suite = cocoex.Suite(
        "bbob-mixint", "", f"function_indices:{number} dimensions:{dimension} instance_indices:1"
    )
    problem = suite.get_problem(0)
    bounds = list(zip(problem.lower_bounds, problem.upper_bounds, strict=True))
    space = {
        f"x{i}": {"integer": [int(low), int(high)]}
        if i < problem.number_of_integer_variables
        else {"uniform": [float(low), float(high)]}
        for i, (low, high) in enumerate(bounds)
    }

    def exact(point: Point, suite: Any = suite) -> float:  # the suite owns the problem's memory
        return float(problem(np.array([float(point[key]) for key in space])))

    return Problem(f"mixint-f{number}-d{dimension}", space, exact, lambda point, random: exact(point))


def table(name: str, space: dict[str, Any]) -> Problem:
    """Return a table of trainings: the search sees the error of one fold, and is judged by the mean of all.

    Args:
        name: name of the file; its columns are the keys of `space`, and `fold_0`, `fold_1`, ...
        space: search space, each point of which has a row.
    """

    @cache
    def rows() -> dict[tuple[str, ...], list[float]]:
        with gzip.open(TABLES / f"{name}.csv.gz", "rt", newline="") as file:
            return {
                tuple(row[key] for key in space): [
                    float(value) for key, value in row.items() if key.startswith("fold_")
                ]
                for row in csv.DictReader(file)
            }

    def errors(point: Point) -> list[float]:
        return rows()[tuple(str(point.get(key, "")) for key in space)]

    return Problem(
        name,
        space,
        lambda point: float(np.mean(errors(point))),
        lambda point, random: errors(point)[int(random.integers(len(errors(point))))],
    )


FAMILY = {"family": ["svm", "forest", "boosting", "knn", "mlp"]}
FAMILIES: dict[str, Any] = {
    **FAMILY,
    "c": {"choice": [10.0**k for k in range(-3, 5)], "when": {"family": "svm"}},
    "gamma": {"choice": [10.0**k for k in range(-6, 2)], "when": {"family": "svm"}},
    "kernel": {"choice": ["rbf", "poly", "sigmoid"], "when": {"family": "svm"}},
    "depth": {"integer": [1, 10], "when": {"family": ["forest", "boosting"]}},
    "features": {"choice": [0.05, 0.1, 0.2, 0.4, 0.8], "when": {"family": ["forest", "boosting"]}},
    "rate": {"choice": [0.01, 0.03, 0.1, 0.3, 1.0], "when": {"family": "boosting"}},
    "neighbors": {"integer": [1, 30], "when": {"family": "knn"}},
    "weights": {"choice": ["uniform", "distance"], "when": {"family": "knn"}},
    "units": {"choice": [4, 8, 16, 32, 64], "when": {"family": "mlp"}},
    "activation": {"choice": ["relu", "tanh", "logistic"], "when": {"family": "mlp"}},
    "step": {"choice": [1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0], "when": {"family": "mlp"}},
    "solver": {"choice": ["sgd", "adam"], "when": {"family": "mlp"}},
}
DIGITS: dict[str, Any] = {
    "optimizer": ["sgd", "adam"],
    "lr": {"choice": [float(f"{10 ** (-3.5 + k / 3):.3g}") for k in range(11)]},
    "momentum": {"choice": [0.0, 0.9, 0.97], "when": {"optimizer": "sgd"}},
    "batch": {"choice": [16, 32, 64]},
    "layers": {"integer": [1, 2]},
    "units": {"choice": [16, 32, 64, 128]},
    "dropout": {"choice": [0.0, 0.3]},
}


def network(failing: bool) -> Problem:
    """Return a formula of a network's loss with mixed and conditional keys; in one half of the space trials may fail."""
    space: dict[str, Any] = {
        "optimizer": ["sgd", "adam", "rmsprop"],
        "lr": {"log_uniform": [1e-5, 1]},
        "layers": {"integer": [1, 6]},
        "units": {"log_integer": [8, 1024]},
        "activation": ["relu", "tanh", "gelu", "elu"],
        "momentum": {"uniform": [0, 1], "when": {"optimizer": "sgd"}},
        "beta": {"log_uniform": [1e-3, 1], "when": {"optimizer": "adam"}},
    }
    best = {"sgd": (1e-1, 0.0), "adam": (1e-3, 0.02), "rmsprop": (3e-3, 0.12)}
    bonus = {"relu": 0.0, "tanh": 0.03, "gelu": -0.02, "elu": 0.01}

    def exact(point: Point) -> float:
        rate, loss = best[point["optimizer"]]
        away = math.log10(point["lr"] / rate / (0.5 if point["layers"] > 3 else 1))
        if failing and (away > 0.7 or point["units"] * point["layers"] > 3000):
            return math.inf
        loss += (
            0.08 * away**2 + 0.02 * (point["layers"] - 4) ** 2 + 0.015 * math.log2(point["units"] / 300) ** 2
        )
        loss += 0.4 * (point["momentum"] - 0.9) ** 2 if "momentum" in point else 0.0
        loss += 0.1 * abs(math.log10(point["beta"] / 0.02)) if "beta" in point else 0.0
        return loss + bonus[point["activation"]]

    return Problem(
        "network-failing" if failing else "network",
        space,
        exact,
        lambda point, random: exact(point) + 0.01 * float(random.standard_normal()),
    )


def problems() -> dict[str, Callable[[], Problem]]:
    """Return the function that makes each problem, by name."""
    return {
        "ackley5": lambda: classical("ackley5", ackley, 5, {"uniform": [-32.768, 32.768]}),
        "ackley15": lambda: classical("ackley15", ackley, 15, {"uniform": [-32.768, 32.768]}),
        "levy4": lambda: classical("levy4", levy, 4, {"uniform": [-10, 10]}, noise=0.3),
        "rosenbrock6": lambda: classical("rosenbrock6", rosenbrock, 6, {"uniform": [-2.0, 2.0]}),
        "styblinski6": lambda: classical("styblinski6", styblinski, 6, {"integer": [-5, 5]}),
        "network": lambda: network(False),
        "network-failing": lambda: network(True),
        "sklearn-digits": lambda: table("sklearn-digits", FAMILIES),
        "sklearn-wine": lambda: table("sklearn-wine", FAMILIES),
        "digits-training": lambda: table("digits-training", DIGITS),
        **{
            f"mixint-f{number}-d{dimension}": lambda number=number, dimension=dimension: mixint(
                number, dimension
            )
            for number in (3, 6, 12, 17, 20, 23)
            for dimension in (5, 10)
        },
    }
