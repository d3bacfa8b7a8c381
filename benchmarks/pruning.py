"""Measure how often the test that prunes is wrong, and what pruning costs: `python benchmarks/pruning.py [--quick]`.

First table: equally good trials that are pruned, against a given trial (1) and against the best of 30, with values that vary
normally, are rounded to one standard deviation, or whose standard deviations differ. Folds have the correlation 1/k of
overlapping training sets. Second table: searches of 40 trials with and without pruning: folds trained and regret, the
difference between the true value of the best trial and the best true value of all trials.
"""

import argparse
import math
from collections.abc import Iterator

import numpy as np

from nnlo_lib.config.search import SearchConfig
from nnlo_lib.search.fold_statistics import FoldNoise, pruning_p_value
from nnlo_lib.search.study.snapshot import StudySnapshot
from nnlo_lib.search.study.study import next_fold
from nnlo_lib.search.study.trial import FoldTask, Result, SchedulingDecision, Trial

LEVEL = 0.05
KINDS = ("normal", "rounded", "different deviations")
TRIALS = 40
SPREAD = 3.0  # standard deviation of the true values of trials, in standard deviations of a fold


def fold_values(source: np.random.Generator, count: int, k: int, kind: str) -> np.ndarray:
    """Return values of equally good trials, (count, k).

    Args:
        source: random numbers.
        count: number of trials.
        k: number of folds.
        kind: one of KINDS.
    """
    own, common = source.normal(size=(count, k)), source.normal(size=(count, 1))
    values = math.sqrt(1 - 1 / k) * own + math.sqrt(1 / k) * common
    if kind == "rounded":
        values = np.round(values)
    if kind == "different deviations":
        values *= np.exp(0.7 * source.normal(size=(count, 1)))
    return np.asarray(values + 2 * source.normal(size=k).round())


def is_pruned(values: np.ndarray, candidate: np.ndarray) -> bool:
    """Return True if a trial is pruned after any of its folds, in favor of the best of other trials."""
    k, noise = len(candidate), FoldNoise.of(values.tolist())
    best = values[values.mean(axis=1).argmin()].tolist()
    looks = range(2, k)
    return any(pruning_p_value(candidate[:n].tolist(), best, len(values), noise) < LEVEL for n in looks)


def false_pruning(k: int, others: int, kind: str, searches: int) -> float:
    """Return the share of equally good trials that are pruned.

    Args:
        k: number of folds.
        others: number of other trials, the best of which is the leader.
        kind: one of KINDS.
        searches: number of repetitions.
    """
    source = np.random.default_rng([k, others, KINDS.index(kind)])
    draws: Iterator[np.ndarray] = (fold_values(source, others + 1, k, kind) for _ in range(searches))
    return float(np.mean([is_pruned(every[:-1], every[-1]) for every in draws]))


def searched(k: int, prune: float | None, seed: int) -> tuple[int, float]:
    """Run a search with one fold task at a time; return the number of trained folds and the regret.

    Args:
        k: number of folds.
        prune: level of the test; None: no pruning.
        seed: seed of the values.
    """
    source = np.random.default_rng([seed, k])
    truth = SPREAD * source.normal(size=TRIALS)
    values = truth[:, None] + fold_values(source, TRIALS, k, "normal")
    folds = {"k": k, "in_turn": True, "prune": prune}
    search = SearchConfig.model_validate({"space": {"x": {"uniform": [0, 1]}}, "folds": folds})
    trials: list[Trial] = []
    results: dict[FoldTask, Result] = {}
    while True:
        known = StudySnapshot(search, 1, trials, results)
        task = next((found for trial in trials if (found := next_fold(known, trial.number))), None)
        if task is None and len(trials) == TRIALS:
            winner = known.best_trial()
            assert winner is not None
            return len(results), float(truth[winner] - truth.min())
        task = task or FoldTask(len(trials), 0, 1)
        decision = SchedulingDecision(len(results), task, ())
        old = trials[task.trial] if task.trial < len(trials) else Trial(task.trial, {"x": 0.5})
        trials[task.trial : task.trial + 1] = [Trial(old.number, old.point, (*old.decisions, decision))]
        row = {"epoch": 1, "val_loss": float(values[task.trial, task.fold]), "seconds": 1.0}
        results = {**results, task: Result(task, "finished", (row,))}


def main() -> None:
    """Print both tables as Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few repetitions")
    parser.add_argument("--experiments", type=int, default=10_000, help="repetitions of the first table")
    parser.add_argument("--searches", type=int, default=100, help="repetitions of the second table")
    options = parser.parse_args()
    if options.quick:
        options.experiments, options.searches = 30, 2
    print("| equal trials pruned | k = 3 | k = 5 | k = 10 |\n| --- | ---: | ---: | ---: |")
    for others in (1, 30):
        for kind in KINDS:
            shares = (false_pruning(k, others, kind, options.experiments) for k in (3, 5, 10))
            print(f"| best of {others}, {kind} | {' | '.join(f'{share:.1%}' for share in shares)} |")
    print("\n| folds trained, mean regret | k = 3 | k = 5 | k = 10 |\n| --- | ---: | ---: | ---: |")
    for prune in (None, LEVEL):
        cells = [_search_cell(k, prune, options.searches) for k in (3, 5, 10)]
        print(f"| prune: {prune or 'null'} | {' | '.join(cells)} |")


def _search_cell(k: int, prune: float | None, searches: int) -> str:
    folds, regrets = zip(*(searched(k, prune, seed) for seed in range(searches)), strict=True)
    return f"{np.mean(folds) / (TRIALS * k):.0%}, {np.mean(regrets):.3f}"


if __name__ == "__main__":
    main()
