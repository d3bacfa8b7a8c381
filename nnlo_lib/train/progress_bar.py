"""Progress bar of an epoch, for terminals."""

import os
import sys
from typing import Self

from torch import Tensor
from tqdm import tqdm

from nnlo_lib.data.loading.loader import BatchLoader
from nnlo_lib.problems.base import Problem

# A launcher at a terminal sets this variable: its ranks write to a pipe, so isatty() is False for them.
TERMINAL = "NNLO_TERMINAL"


class ProgressBar:
    """Shows samples per second, loss and metrics of the running epoch; invisible without a terminal.

    Args:
        epoch: running epoch, counted from 0.
        index: progress within the epoch at which the bar starts, in steps.
        loader: loader of the epoch's batches.
        problem: problem whose sums are shown.
        shown: whether this rank shows a bar.
    """

    def __init__(self, epoch: int, index: int, loader: BatchLoader, problem: Problem, shown: bool) -> None:
        visible = shown and (sys.stderr.isatty() or TERMINAL in os.environ)
        self._problem, self._loader = problem, loader
        self._bar = tqdm(
            total=loader.samples, unit=" samples", unit_scale=True, leave=False, mininterval=0.5,
            desc=f"epoch {epoch + 1}", disable=not visible, initial=self._samples(index),
        )  # fmt: skip

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.close()

    def show(self, index: int, sums: Tensor) -> None:
        """Advance to step `index` of the epoch and show the means of `sums`."""
        if not self._bar.disable and self._bar.update(self._samples(index) - self._bar.n):
            means = self._problem.means(sums)
            self._bar.set_postfix({name: f"{value:.4f}" for name, value in means.items()}, refresh=False)

    def _samples(self, index: int) -> int:
        return self._loader.samples * index // self._loader.steps_per_epoch
