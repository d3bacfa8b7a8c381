"""Measure searches with several objectives: `python benchmarks/objectives.py [--quick] [--pending 8] [--methods auto ...]`.

The result is the median over seeds of the hypervolume after 60 evaluations: the share of the box between 0 and a reference
point that the front dominates. Peers of nnlo's methods are Optuna's NSGA-II and TPE. With --pending W, a proposal does
not use the last W evaluations.
"""

import argparse
import math
import os
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

# Set before numpy is imported, because its libraries read it when they are loaded.
os.environ.setdefault("OMP_NUM_THREADS", "1")

from sampler_problems import Point
from sampler_problems import network as training
from samplers import suggest

from nnlo_lib.config.search import SearchConfig
from nnlo_lib.search.pareto import Vector
from nnlo_lib.search.samplers.base import build_sampler
from nnlo_lib.search.study.snapshot import StudySnapshot
from nnlo_lib.search.study.trial import FoldTask, Result, SchedulingDecision, Trial

OURS, OPTUNA = ("random", "auto"), ("nsga2", "tpe")
TRAINING = training(failing=False)


# Search space, functions to minimize together, and the reference point; the ideal point is 0.
Problem = tuple[dict[str, Any], Callable[[Point], Vector], Vector]


def zdt1(point: Point) -> Vector:
    """Return the objectives of ZDT1 (Zitzler, Deb and Thiele 2000), with a convex front."""
    first, *rest = point.values()
    g = 1 + 9 * statistics.fmean(rest)
    return first, g * (1 - math.sqrt(first / g))


def dtlz2(point: Point) -> Vector:
    """Return three objectives of DTLZ2 (Deb et al. 2002), whose front is an eighth of a sphere."""
    x, y, *rest = (each * math.pi / 2 for each in point.values())
    g = 1 + sum((each * 2 / math.pi - 0.5) ** 2 for each in rest)
    return g * math.cos(x) * math.cos(y), g * math.cos(x) * math.sin(y), g * math.sin(x)


def network(point: Point) -> Vector:
    """Return the loss of a formula of a training, at least 0, and the parameters of its network: 80 to 5 million."""
    return 0.1 + TRAINING.exact(point), point["units"] * (10 + (point["layers"] - 1) * point["units"])


UNIT = {f"x{i}": {"uniform": [0, 1]} for i in range(6)}
PROBLEMS: dict[str, Problem] = {
    "zdt1": (UNIT, zdt1, (1.1, 1.1)),
    "dtlz2": (UNIT, dtlz2, (1.1, 1.1, 1.1)),
    "network": (TRAINING.space, network, (0.5, 100_000)),
}


def ours(method: str, problem: Problem, seed: int, evaluations: int, pending: int) -> Iterator[Vector]:
    """Yield the values of the proposals of a method of nnlo."""
    space, function, reference = problem
    objective = [{"metric": f"f{place}", "direction": "minimize"} for place in range(len(reference))]
    settings = {"space": space, "method": {"name": method}, "seed": seed, "objective": objective}
    search = SearchConfig.model_validate(settings)
    propose, trials, results = build_sampler(search), [], {}
    for number in range(evaluations):
        known = dict(list(results.items())[: max(0, number - pending)])
        point = propose(number, StudySnapshot(search, 1, trials, known))
        values, fold_task = function(point), FoldTask(number, 0, 1)
        trials.append(Trial(number, point, (SchedulingDecision(number, fold_task, ()),)))
        row = {f"f{place}": value for place, value in enumerate(values)}
        results[fold_task] = Result(fold_task, "finished", (row,))
        yield values


def optuna_s(method: str, problem: Problem, seed: int, evaluations: int, pending: int) -> Iterator[Vector]:
    """Yield the values of the proposals of Optuna."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    samplers = optuna.samplers
    sampler = (
        samplers.TPESampler(seed=seed)
        if method == "tpe"
        else samplers.NSGAIISampler(seed=seed, population_size=20)
    )
    study = optuna.create_study(directions=["minimize"] * len(problem[2]), sampler=sampler)
    running = []
    for _ in range(evaluations):
        trial = study.ask()
        running.append((trial, problem[1](suggest(trial, problem[0]))))
        yield running[-1][1]
        if len(running) > pending:
            study.tell(*running.pop(0))


def hypervolume(vectors: list[Vector], reference: Vector) -> float:
    """Return the volume that the vectors dominate below the reference point, by slices along the last objective."""
    *rest, most = reference
    inside = sorted((each for each in vectors if each[-1] < most), key=lambda each: each[-1])
    if not rest:
        return most - inside[0][0] if inside else 0.0
    volume, ends = 0.0, [*(each[-1] for each in inside[1:]), most]
    for place, each in enumerate(inside):
        front = [other[:-1] for other in inside[: place + 1]]
        volume += (ends[place] - each[-1]) * hypervolume(front, tuple(rest))
    return volume


def main() -> None:
    """Measure each method and print its row of a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few seeds and evaluations")
    for name, number in (("--seeds", 10), ("--evaluations", 60), ("--pending", 0)):
        parser.add_argument(name, type=int, default=number)
    parser.add_argument("--methods", nargs="+", default=[*OURS, *OPTUNA])
    options = parser.parse_args()
    if options.quick:
        options.seeds, options.evaluations, options.methods = 2, 12, ["random", "auto"]
    print(f"| median hypervolume (quartiles) | {' | '.join(PROBLEMS)} | s per proposal |")
    print(f"| --- |{' ---: |' * (len(PROBLEMS) + 1)}")
    for method in options.methods:
        search, started, cells = optuna_s if method in OPTUNA else ours, time.process_time(), []
        for problem in PROBLEMS.values():
            given = options.evaluations, options.pending
            every = [[*search(method, problem, seed, *given)] for seed in range(options.seeds)]
            found = [hypervolume(each, problem[2]) / math.prod(problem[2]) for each in every]
            low, median, high = statistics.quantiles(found, n=4)
            cells.append(f"{median:.3f} ({low:.3f} to {high:.3f})")
        seconds = (time.process_time() - started) / len(PROBLEMS) / options.seeds / options.evaluations
        print(f"| {method} | {' | '.join(cells)} | {seconds:.3f} |", flush=True)


if __name__ == "__main__":
    main()
