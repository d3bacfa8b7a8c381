"""What is learned, as the training loop sees it: something to differentiate, and figures that add up."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

from torch import Tensor, nn

from nnlo_lib.config import Run


class BatchLoss(NamedTuple):
    """The loss of a mini-batch, a scalar to be differentiated, and its sums, worked out when wanted."""

    loss: Tensor
    sums: Callable[[], Tensor]


class Problem(ABC):
    """Sums are float64 (1 + names,): samples, then the summed loss and each summed metric; they add up over batches."""

    names: tuple[str, ...]  # "loss", then the metrics

    @classmethod
    @abstractmethod
    def from_config(cls, config: Any, run: Run) -> "Problem":
        """Return what a run with these settings, `run.problem`, learns. Raises UserError if a user's function cannot be read."""

    @abstractmethod
    def compute_loss(
        self, module: nn.Module, inputs: tuple[Tensor, ...], targets: Tensor, step: int
    ) -> BatchLoss:
        """Apply the model to a mini-batch to learn from, in a step of the run counted from 0."""

    @abstractmethod
    def measure(self, module: nn.Module, inputs: tuple[Tensor, ...], targets: Tensor) -> Tensor:
        """Return the sums of samples that nothing is learned from, without a gradient."""

    @abstractmethod
    def means(self, sums: Tensor) -> dict[str, float]:
        """Return the mean loss and metrics by name; nothing of no samples."""
