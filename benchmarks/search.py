"""Measure the regret of search methods: `python benchmarks/search.py [--quick] [--pending 8] [--methods forest gp ...]`.

The result is the median over seeds of the simple regret after 50 evaluations: the difference, without noise, between the
value of the point with the best observation and the minimum. nnlo's methods are compared with Optuna's TPE, with its
defaults (tpe) and multivariate with groups (tpe+). With --pending W, a proposal does not use the last W evaluations.
"""

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any

# Set before numpy is imported, because its libraries read it when they are loaded.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from search_functions import FUNCTIONS, Function, Point

from nnlo_lib.config.search import SearchConfig
from nnlo_lib.search.samplers.base import build_sampler
from nnlo_lib.search.study.snapshot import StudySnapshot
from nnlo_lib.search.study.trial import FoldTask, Result, SchedulingDecision, Trial

OURS = ("random", "sobol", "genetic", "forest", "gp")
OPTUNA = {"tpe": {}, "tpe+": {"multivariate": True, "group": True}}


def ours(method: str, function: Function, seed: int, evaluations: int, pending: int) -> Iterator[Point]:
    """Yield proposals of a method of nnlo; the caller sends the value of each proposal.

    Args:
        method: name of the method.
        function: function to minimize.
        seed: seed of the method.
        evaluations: number of proposals.
        pending: number of latest evaluations that a proposal does not use.
    """
    settings = {"space": function.space, "method": {"name": method}, "trials": evaluations, "seed": seed}
    search = SearchConfig.model_validate(settings)
    propose, trials, results = build_sampler(search), [], {}
    for number in range(evaluations):
        known = dict(list(results.items())[: max(0, number - pending)])
        point = propose(number, StudySnapshot(search, 1, trials, known))
        assert point is not None
        value = yield point
        fold_task = FoldTask(number, 0, 1)
        trials.append(Trial(number, point, (SchedulingDecision(number, fold_task, ()),)))
        results[fold_task] = Result(fold_task, "finished", ({"val_loss": value, "seconds": 1.0},))


def tpe(method: str, function: Function, seed: int, evaluations: int, pending: int) -> Iterator[Point]:
    """Yield proposals of Optuna; the caller sends the value of each proposal. The arguments equal the arguments of `ours`."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    # Optuna's option for parallel trials: pending trials count with a poor value.
    options = OPTUNA[method] | ({"constant_liar": True} if pending else {})
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed, **options))
    running: list[tuple[Any, float]] = []
    for _ in range(evaluations):
        trial = study.ask()
        running.append((trial, (yield suggest(trial, function.space))))
        if len(running) > pending:
            study.tell(*running.pop(0))


def suggest(trial: Any, space: dict[str, Any]) -> Point:
    """Return a point suggested by Optuna; a key with a condition is suggested only if the condition holds."""
    point: Point = {}
    for key, range_ in space.items():
        if isinstance(range_, list):
            point[key] = trial.suggest_categorical(key, range_)
        elif all(point[other] == value for other, value in range_.get("when", {}).items()):
            kind = next(iter(range_))
            draw = trial.suggest_int if kind.endswith("integer") else trial.suggest_float
            point[key] = draw(key, *range_[kind], log=kind.startswith("log"))
    return point


def regret(proposals: Any, function: Function, seed: int) -> float:
    """Evaluate all proposals; return the regret of the point with the best observation.

    Args:
        proposals: generator that yields points and receives their observed values.
        function: function to minimize.
        seed: seed of the noise.
    """
    # The noise depends only on the seed, so that all methods get the same sequence.
    noise = np.random.default_rng([seed, 1])
    best, regret, value = np.inf, np.inf, None
    while True:
        try:
            point = proposals.send(value)
        except StopIteration:
            return regret
        exact = function.value(point)
        value = exact + function.noise * float(noise.standard_normal())
        # A search sees only noisy values, but its result is judged without noise.
        if value < best:
            best, regret = value, exact - function.least


def measure(
    method: str, function: Function, seeds: range, options: argparse.Namespace
) -> tuple[list[float], float]:
    """Return the regret for each seed, and the mean time of a proposal in seconds.

    Args:
        method: name of the method.
        function: function to minimize.
        seeds: seeds of the repetitions.
        options: options of the command.
    """
    search: Callable[..., Iterator[Point]] = tpe if method in OPTUNA else ours
    started = time.perf_counter()
    regrets = [
        regret(search(method, function, seed, options.evaluations, options.pending), function, seed)
        for seed in seeds
    ]
    return regrets, (time.perf_counter() - started) / len(seeds) / options.evaluations


def main() -> None:
    """Measure each method and print its row of a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few seeds and evaluations")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first", type=int, default=0, help="first seed")
    parser.add_argument("--evaluations", type=int, default=50)
    parser.add_argument(
        "--pending", type=int, default=0, help="number of latest evaluations that a proposal does not use"
    )
    parser.add_argument("--methods", nargs="+", default=[*OURS, *OPTUNA], choices=[*OURS, *OPTUNA])
    parser.add_argument("--functions", nargs="+", default=[each.name for each in FUNCTIONS])
    options = parser.parse_args()
    if options.quick:
        options.seeds, options.evaluations = 2, 8
        options.methods = [*OURS, *(OPTUNA if find_spec("optuna") else ())]
    functions = [each for each in FUNCTIONS if each.name in options.functions]
    seeds = range(options.first, options.first + options.seeds)
    print(f"| median regret (quartiles) | {' | '.join(each.name for each in functions)} | s per proposal |")
    print(f"| --- |{' ---: |' * (len(functions) + 1)}")
    for method in options.methods:
        measured = [measure(method, function, seeds, options) for function in functions]
        cells = " | ".join(_cell(regrets) for regrets, _ in measured)
        print(f"| {method} | {cells} | {max(seconds for _, seconds in measured):.3f} |")
        sys.stdout.flush()


def _cell(regrets: list[float]) -> str:
    low, median, high = statistics.quantiles(regrets, n=4)
    return f"{median:.3g} ({low:.2g} to {high:.2g})"


if __name__ == "__main__":
    main()
