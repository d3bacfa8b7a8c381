"""Theano-MPI's recorder: costs, errors and times that a model reports in its iterations."""

import time
from collections.abc import Iterator
from typing import Any

from nnlo_lib.comm.communicator import Communicator

MODES = ("calc", "comm", "wait")
NAMES = {"train": ("train_cost", "train_error"), "val": ("val_cost", "val_error", "val_error_top5")}


class IterationRecorder:
    """Collects the values of one rank; `end_epoch` returns the means over all ranks.

    Args:
        comm: communicator of all ranks.
    """

    def __init__(self, comm: Communicator) -> None:
        self._comm, self._started = comm, time.perf_counter()
        self._clear()

    def _clear(self) -> None:
        self._values: dict[str, list[float]] = {name: [] for names in NAMES.values() for name in names}
        self._seconds = dict.fromkeys(MODES, 0.0)

    def start(self) -> None:
        """Begin a part of an iteration."""
        self._started = time.perf_counter()

    def end(self, mode: str) -> None:
        """Count the time since `start` as `calc`, `comm` or `wait`."""
        if mode not in MODES:
            raise ValueError(f"recorder.end: unknown mode '{mode}'; use one of {', '.join(MODES)}")
        self._seconds[mode] += time.perf_counter() - self._started

    def train_error(self, count: int, cost: Any, error: Any) -> None:
        """Record a training step; values are numbers or tensors of one element.

        Args:
            count: number of the iteration.
            cost: loss of the batch.
            error: fraction of wrong answers.
        """
        self._add("train", cost, error)

    def val_error(self, count: int, cost: Any, error: Any, error_top5: Any = float("nan")) -> None:
        """Record a validation batch.

        Args:
            count: number of the iteration.
            cost: loss of the batch.
            error: fraction of wrong answers.
            error_top5: fraction of answers that are not among the best five.
        """
        self._add("val", cost, error, error_top5)

    def _add(self, split: str, *values: Any) -> None:
        for name, value in zip(NAMES[split], values, strict=True):
            self._values[name].append(float(value))

    def end_epoch(self) -> dict[str, float]:
        """Return the means over all ranks since the last call, and the times of the slowest rank."""
        ranks = self._comm.gather([self._values, self._seconds])
        self._clear()
        return dict(self._row([values for values, _ in ranks], [seconds for _, seconds in ranks]))

    def _row(
        self, values: list[dict[str, list[float]]], seconds: list[dict[str, float]]
    ) -> Iterator[tuple[str, float]]:
        for name in self._values:
            everyones = [each for rank in values for each in rank[name]]
            yield name, sum(everyones) / len(everyones) if everyones else float("nan")
        yield from ((f"{mode}_seconds", max(rank[mode] for rank in seconds)) for mode in MODES)
