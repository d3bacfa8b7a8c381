"""What is learned, as the training loop sees it: something to differentiate, and figures that add up."""

from collections.abc import Callable
from typing import NamedTuple, Protocol

from torch import Tensor, nn


class Objective(NamedTuple):
    """The loss of a mini-batch, a scalar to be differentiated, and its sums, worked out when wanted."""

    loss: Tensor
    sums: Callable[[], Tensor]


class Problem(Protocol):
    """Sums are float64 (1 + names,): samples, then the summed loss and each summed metric; they add up over batches."""

    names: tuple[str, ...]  # "loss", then the metrics

    def objective(
        self, module: nn.Module, inputs: tuple[Tensor, ...], targets: Tensor, step: int
    ) -> Objective:
        """Apply the model to a mini-batch to learn from, in a step of the run counted from 0."""

    def measure(self, module: nn.Module, inputs: tuple[Tensor, ...], targets: Tensor) -> Tensor:
        """Return the sums of samples that nothing is learned from, without a gradient."""

    def means(self, sums: Tensor) -> dict[str, float]:
        """Return the mean loss and metrics by name; nothing of no samples."""
