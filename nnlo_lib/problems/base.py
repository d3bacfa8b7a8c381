"""The interface between the training loop and a problem: a loss to differentiate, and sums over samples."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

from torch import Tensor, nn

from nnlo_lib.config import Run


class BatchLoss(NamedTuple):
    """The loss of a mini-batch.

    Attributes:
        loss: the scalar to differentiate.
        sums: computes the sums of the mini-batch (see Problem) on demand.
    """

    loss: Tensor
    sums: Callable[[], Tensor]


class Problem(ABC):
    """A loss to minimize and metrics to measure.

    Sums are float64 vectors, (1 + len(names),): number of samples, summed loss, each summed metric. They add
    up over mini-batches.
    """

    names: tuple[str, ...]  # "loss", then the metrics

    @classmethod
    @abstractmethod
    def from_config(cls, config: Any, run: Run) -> "Problem":
        """Return the problem of a run with these settings, `run.problem`.

        Raises UserError if a user's function cannot be loaded.
        """

    @abstractmethod
    def compute_loss(
        self, module: nn.Module, inputs: tuple[Tensor, ...], targets: Tensor, step: int
    ) -> BatchLoss:
        """Apply the model to a training mini-batch; `step` is the step of the run, counted from 0."""

    @abstractmethod
    def measure(self, module: nn.Module, inputs: tuple[Tensor, ...], targets: Tensor) -> Tensor:
        """Return the sums of samples that are only evaluated, without a gradient."""

    @abstractmethod
    def means(self, sums: Tensor) -> dict[str, float]:
        """Return the mean loss and metrics by name; an empty dictionary if there are no samples."""
