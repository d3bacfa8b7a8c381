"""Population-based training and random search with equal epochs: `python benchmarks/search_population.py`.

Each search trains eight members of 24 epochs, decided as `nnlo search` decides. They are perceptrons on the digits, in NumPy: a
process for each fold task would take hours. A table shows the median over seeds of the best validation loss, of the last
epoch and of the best one, and in how many seeds the population is better. `--quick`: one seed of four epochs.
"""

import argparse
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from sklearn.datasets import load_digits

from nnlo_lib.config.search import SearchConfig
from nnlo_lib.search.samplers.base import build_sampler
from nnlo_lib.search.study.study import Study, run_study
from nnlo_lib.search.study.trial import FoldTask, Result, read_trial

HIDDEN, BATCH = 32, 32
SPACE = {
    "train.optimizer.lr": {"log_uniform": [1e-4, 3.0]},
    "train.optimizer.momentum": {"uniform": [0.0, 0.99]},
    "train.optimizer.weight_decay": {"log_uniform": [1e-6, 1e-1]},
}
FIDELITIES = {
    "random": {"name": "full"},
    "pbt every 2": {"name": "pbt", "population": 8, "every": 2},
    "pbt every 4": {"name": "pbt", "population": 8, "every": 4},
}


class Trainings:
    """Executor of a search; the weights of each fold task stay in memory."""

    def __init__(self, folder: Path, seed: int) -> None:
        self._folder, self._seed, self._waiting = folder, seed, list[FoldTask]()
        x, y = load_digits(return_X_y=True)
        order = np.random.default_rng(seed).permutation(len(x))
        self._x, self._y = x[order] / 16, y[order]
        self._ended: dict[tuple[int, int], tuple[list[Any], list[dict[str, float]]]] = {}

    def start(self, fold_task: FoldTask) -> None:
        """Note a fold task."""
        self._waiting.append(fold_task)

    def wait(self) -> bool:
        """Train the first of the fold tasks that were started."""
        task = self._waiting.pop(0)
        trial = read_trial(self._folder, task.trial)
        below = max((rung for rung in trial.rungs if rung < task.epochs), default=0)
        source = (
            (trial.parent.trial, trial.parent.epochs) if trial.parent and not below else (task.trial, below)
        )
        weights, rows = self._ended.get(source, (self._initial(task.trial), []))
        weights, rows = [each.copy() for each in weights], list(rows)
        for epoch in range(len(rows), task.epochs):
            self._train(weights, epoch, *trial.point.values())
            rows.append({"epoch": epoch + 1, "val_loss": self._loss(weights), "seconds": epoch + 1.0})
        self._ended[task.trial, task.epochs] = weights, rows
        Result(task, "finished", tuple(rows)).write(self._folder)
        return True

    def _initial(self, trial: int) -> list[Any]:
        random = np.random.default_rng([self._seed, trial])
        layers = [
            random.normal(0, 1 / np.sqrt(size), (size, out)) for size, out in ((64, HIDDEN), (HIDDEN, 10))
        ]
        return [*layers, *map(np.zeros_like, layers)]

    def _train(self, weights: list[Any], epoch: int, lr: float, momentum: float, decay: float) -> None:
        first, second, v1, v2 = weights
        for rows in np.split(np.random.default_rng([self._seed, epoch]).permutation(1280), 1280 // BATCH):
            x, hidden = self._x[rows], np.maximum(self._x[rows] @ first, 0)
            slope = _softmax(hidden @ second)
            slope[np.arange(BATCH), self._y[rows]] -= 1
            slope /= BATCH
            g1, g2 = x.T @ ((slope @ second.T) * (hidden > 0)), hidden.T @ slope
            for weight, velocity, gradient in ((first, v1, g1), (second, v2, g2)):
                velocity *= momentum
                velocity += gradient + decay * weight
                weight -= lr * velocity

    def _loss(self, weights: list[Any]) -> float:
        chance = _softmax(np.maximum(self._x[1280:] @ weights[0], 0) @ weights[1])
        loss = -np.log(chance[np.arange(len(chance)), self._y[1280:]] + 1e-12).mean()
        return float(loss) if np.isfinite(loss) else 1e9


def _softmax(z: Any) -> Any:
    e = np.exp(z - z.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def best_losses(fidelity: dict[str, Any], seed: int, epochs: int) -> tuple[float, float]:
    """Run a search; return the best loss of the last epoch, and of any epoch."""
    trials = None if fidelity["name"] == "pbt" else 8
    settings = {
        "space": SPACE,
        "fidelity": fidelity,
        "trials": trials,
        "seed": seed,
        "method": {"name": "random"},
    }
    search = SearchConfig.model_validate(settings)
    with tempfile.TemporaryDirectory() as folder:
        study = Study(Path(folder), search, epochs, build_sampler(search), 8)
        run_study(study, Trainings(Path(folder), seed))
        results = study.results.values()
        last = min(each.rows[-1]["val_loss"] for each in results if each.fold_task.epochs == epochs)
        return last, min(row["val_loss"] for each in results for row in each.rows)


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one seed of four epochs")
    seeds, epochs = (1, 6) if parser.parse_args().quick else (20, 24)
    np.seterr(all="ignore")  # members with large learning rates diverge
    base: list[tuple[float, float]] = []
    for name, fidelity in FIDELITIES.items():
        found = [best_losses(fidelity, seed, epochs) for seed in range(seeds)]
        base = base or found
        better = [sum(mine[k] < other[k] for mine, other in zip(found, base, strict=True)) for k in (0, 1)]
        last, best = (median(each[k] for each in found) for k in (0, 1))
        print(
            f"{name:<12} last epoch {last:.4f} ({better[0]} of {seeds} better)  best epoch {best:.4f} ({better[1]})",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
