"""Compare the samplers of a search with other libraries: `python benchmarks/samplers.py [--quick] [--methods auto ...]`.

Each search runs in virtual time with 1, 8 or 32 workers and unequal durations. After 25, 50, 100 and 200 trials it is
judged by the value, without noise, of the trial that the search believes to be the best. The methods are ranked for each
problem, number of workers and number of trials; mean ranks differ significantly if they are further apart than Nemenyi's
critical difference (Demsar 2006). Results are kept in a file, so that a second call only adds what is missing.
"""

import argparse
import heapq
import json
import math
import os
import statistics
import time
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

# Set before numpy is imported, because its libraries read it when they are loaded.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from sampler_problems import Point, Problem, problems

from nnlo_lib.config.search import SearchConfig
from nnlo_lib.search.samplers.base import Observations, build_sampler, point_key

CHECKPOINTS = (25, 50, 100, 200)
OURS = ("auto", "skopt", "genetic", "random", "sobol")
OPTUNA = ("tpe", "tpe+", "optuna-gp", "cmaes", "nsga2", "qmc")


class Method(ABC):
    """A method of one search."""

    @abstractmethod
    def ask(self, number: int) -> Point:
        """Return the point of a trial."""

    @abstractmethod
    def tell(self, number: int, point: Point, value: float) -> None:
        """Take the value of a trial; infinite if it failed."""


class Ours(Method):
    """A sampler of NNLO."""

    def __init__(self, name: str, problem: Problem, trials: int, seed: int, workers: int) -> None:
        settings = {"space": problem.space, "method": {"name": name}, "trials": trials, "seed": seed}
        self._sampler = build_sampler(SearchConfig.model_validate(settings)).method
        self._points: list[Point] = []
        self._values: dict[int, float] = {}

    def ask(self, number: int) -> Point:
        worst = max((each for each in self._values.values() if math.isfinite(each)), default=None)
        evaluated = [
            (self._points[each], min(value, worst))
            for each, value in sorted(self._values.items())
            if worst is not None
        ]
        pending = [point for each, point in enumerate(self._points) if each not in self._values]
        tried = frozenset(map(point_key, self._points))
        candidates = self._sampler(number, Observations(evaluated, pending, tried))
        self._points.append(next(each for each in candidates if point_key(each) not in tried))
        return self._points[-1]

    def tell(self, number: int, point: Point, value: float) -> None:
        self._values[number] = value


class Optuna(Method):
    """A sampler of Optuna, with its options for trials in parallel; a failed trial has the worst value so far."""

    def __init__(self, name: str, problem: Problem, trials: int, seed: int, workers: int) -> None:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        samplers, liar = optuna.samplers, {"constant_liar": True} if workers > 1 else {}
        conditional = any("when" in each for each in problem.space.values() if isinstance(each, dict))
        if name == "tpe":
            sampler: Any = samplers.TPESampler(seed=seed, **liar)
        elif name == "tpe+":
            sampler = samplers.TPESampler(seed=seed, multivariate=True, group=conditional, **liar)
        elif name == "optuna-gp":
            sampler = samplers.GPSampler(seed=seed)
        elif name == "cmaes":
            sampler = samplers.CmaEsSampler(seed=seed, with_margin=not conditional)
        elif name == "nsga2":
            sampler = samplers.NSGAIISampler(seed=seed, population_size=20)
        else:
            sampler = samplers.QMCSampler(seed=seed)
        self._study = optuna.create_study(sampler=sampler)
        self._space, self._running, self._worst = problem.space, {}, -math.inf

    def ask(self, number: int) -> Point:
        self._running[number] = trial = self._study.ask()
        return suggest(trial, self._space)

    def tell(self, number: int, point: Point, value: float) -> None:
        if math.isfinite(value):
            self._worst = max(self._worst, value)
            self._study.tell(self._running.pop(number), value)
        elif math.isfinite(self._worst):
            self._study.tell(self._running.pop(number), self._worst)
        else:
            import optuna

            self._study.tell(self._running.pop(number), state=optuna.trial.TrialState.FAIL)


def suggest(trial: Any, space: dict[str, Any]) -> Point:
    """Return a point that a trial of Optuna suggests; a key with a condition is suggested only if the condition holds."""
    point: Point = {}
    for key, kind in space.items():
        if isinstance(kind, list):
            point[key] = trial.suggest_categorical(key, kind)
            continue
        wanted = {
            other: [each] if isinstance(each, str) else each for other, each in kind.get("when", {}).items()
        }
        if any(point.get(other) not in values for other, values in wanted.items()):
            continue
        if "choice" in kind and isinstance(kind["choice"][0], str):
            point[key] = trial.suggest_categorical(key, kind["choice"])
        elif "choice" in kind:  # numbers in order: as an index, Optuna knows their order
            point[key] = kind["choice"][trial.suggest_int(key, 0, len(kind["choice"]) - 1)]
        else:
            name = next(iter(kind))
            draw = trial.suggest_int if name.endswith("integer") else trial.suggest_float
            point[key] = draw(key, *kind[name], log=name.startswith("log"))
    return point


def search(method: str, name: str, seed: int, workers: int, trials: int) -> dict[str, Any]:
    """Run a search in virtual time; return the value of its best trial at each checkpoint."""
    problem, started = problems()[name](), time.process_time()
    kind = Optuna if method in OPTUNA else Ours
    sampler = kind(method, problem, trials, seed, workers)
    durations = np.random.default_rng([seed, 2])
    running: list[tuple[float, int, Point]] = []
    best, judged, marks, clock = math.inf, math.inf, {}, 0.0
    spent = time.process_time() - started
    for done in range(trials):
        while len(running) < workers and done + len(running) < trials:
            begun, number = time.process_time(), done + len(running)
            point = sampler.ask(number)
            spent += time.process_time() - begun
            heapq.heappush(running, (clock + float(durations.lognormal(0, 0.5)), number, point))
        clock, number, point = heapq.heappop(running)
        # The noise depends on the trial only, so that all methods get the same sequence.
        value = problem.observe(point, np.random.default_rng([seed, 1, number]))
        sampler.tell(number, point, value)
        if value < best:
            best, judged = value, problem.exact(point)
        if done + 1 in (*CHECKPOINTS, trials):
            marks[done + 1] = judged
    return {"method": method, "problem": name, "seed": seed, "workers": workers, "values": marks,
            "seconds": spent / trials}  # fmt: skip


def ranks(
    results: Sequence[dict[str, Any]], methods: Sequence[str]
) -> dict[tuple[int, int], list[list[float]]]:
    """Return the ranks of the methods for each number of workers and of trials, one list per problem with all results.

    Within a problem, the methods are ranked for each seed, and these ranks are averaged: seeds are no blocks of their own.
    """
    from scipy.stats import rankdata

    values: dict[tuple[int, int, str, int], dict[str, float]] = defaultdict(dict)
    for each in results:
        for trials, value in each["values"].items():
            values[each["workers"], int(trials), each["problem"], each["seed"]][each["method"]] = value
    by_problem: dict[tuple[int, int, str], list[Any]] = defaultdict(list)
    for (workers, trials, problem, _), found in values.items():
        if set(methods) <= found.keys():
            by_problem[workers, trials, problem].append(rankdata([found[method] for method in methods]))
    blocks: dict[tuple[int, int], list[list[float]]] = defaultdict(list)
    for (workers, trials, _), each in by_problem.items():
        blocks[workers, trials].append(list(np.mean(each, axis=0)))
    return blocks


def critical_difference(methods: int, blocks: int) -> float:
    """Return Nemenyi's critical difference of mean ranks at 5 % (Demsar 2006, section 3.2.2)."""
    from scipy.stats import studentized_range

    return float(
        studentized_range.ppf(0.95, methods, 1e6)
        / math.sqrt(2)
        * math.sqrt(methods * (methods + 1) / 6 / blocks)
    )


def report(results: Sequence[dict[str, Any]], methods: Sequence[str]) -> None:
    """Print mean ranks with critical differences, and the median value by problem."""
    found = ranks(results, methods)
    workers = sorted({each for each, _ in found})
    print(f"\n| mean rank | {' | '.join(f'{w}: {t}' for w, t in sorted(found))} | all | s per proposal |")
    print(f"| --- |{' ---: |' * (len(found) + 2)}")
    means = {key: np.mean(blocks, axis=0) for key, blocks in sorted(found.items())}
    seconds = {m: statistics.median(r["seconds"] for r in results if r["method"] == m) for m in methods}
    overall = np.mean(list(means.values()), axis=0)
    for place in np.argsort(overall):
        cells = " | ".join(f"{mean[place]:.2f}" for mean in means.values())
        print(f"| {methods[place]} | {cells} | {overall[place]:.2f} | {seconds[methods[place]]:.3f} |")
    differences = [critical_difference(len(methods), len(blocks)) for _, blocks in sorted(found.items())]
    print(f"| critical difference | {' | '.join(f'{each:.2f}' for each in differences)} | | |")
    print(f"{len(next(iter(found.values())))} problems; columns: workers: trials")
    last = max(t for _, t in found)
    for count in workers:
        print(
            f"\n| {count} at a time, {last} trials | {' | '.join(methods)} |\n| --- |{' ---: |' * len(methods)}"
        )
        for problem in sorted({each["problem"] for each in results}):
            cells = []
            for method in methods:
                values = [
                    each["values"][str(last)] for each in results
                    if (each["method"], each["problem"], each["workers"]) == (method, problem, count) and str(last) in each["values"]
                ]  # fmt: skip
                cells.append(f"{statistics.median(values):.4g}" if values else "")
            print(f"| {problem} | {' | '.join(cells)} |")


def main() -> None:
    """Run the searches that are missing, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--methods", nargs="+", default=["auto", "tpe", "tpe+", "cmaes", "nsga2", "random"])
    parser.add_argument("--problems", nargs="+", default=list(problems()))
    parser.add_argument("--workers", nargs="+", type=int, default=[1, 8, 32])
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first", type=int, default=0, help="first seed")
    parser.add_argument("--results", type=Path, default=Path("samplers.jsonl"))
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument(
        "--quick", action="store_true", help="two searches of eight trials by each of two methods"
    )
    options = parser.parse_args()
    if options.quick:
        options.methods, options.problems, options.workers = ["auto", "random"], ["levy4", "network"], [1]
        options.seeds, options.trials, options.results = 1, 8, Path(os.devnull)
    known = (
        [json.loads(line) for line in options.results.read_text().splitlines()]
        if options.results.exists()
        else []
    )
    done = {
        (each["method"], each["problem"], each["seed"], each["workers"])
        for each in known
        if str(options.trials) in each["values"]
    }
    jobs = [
        (method, problem, seed, workers)
        for seed in range(options.first, options.first + options.seeds)
        for problem in options.problems for workers in options.workers for method in options.methods
        if (method, problem, seed, workers) not in done
    ]  # fmt: skip
    with ProcessPoolExecutor(options.processes) as pool, options.results.open("a") as file:
        for future in as_completed([pool.submit(search, *job, options.trials) for job in jobs]):
            line = json.dumps(future.result())
            file.write(line + "\n")
            file.flush()
            known.append(json.loads(line))
    wanted = [
        each for each in known
        if each["method"] in options.methods and each["problem"] in options.problems and each["workers"] in options.workers
        and options.first <= each["seed"] < options.first + options.seeds
    ]  # fmt: skip
    report(wanted, options.methods)


if __name__ == "__main__":
    main()
