"""Moving average of the training loss."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

NO_LOSS = math.nan  # value before the first loss


class LossAverage:
    """Exponential moving average of the mean losses of a rank's mini-batches; it starts with the first loss.

    Attributes:
        decay: weight of the earlier losses, below 1; None if no average is requested.
        value: the average; NaN before the first loss.
    """

    def __init__(self, decay: float | None) -> None:
        self.decay, self.value = decay, NO_LOSS

    @property
    def is_requested(self) -> bool:
        """Whether the run has an average."""
        return self.decay is not None

    def add(self, loss: float | None) -> None:
        """Add the mean loss of a mini-batch; a batch without samples has none."""
        if self.decay is None or loss is None:
            return
        self.value = loss if math.isnan(self.value) else self.decay * self.value + (1 - self.decay) * loss

    def state(self) -> dict[str, Tensor]:
        """Return the state for a checkpoint; empty if no average is requested."""
        return {"loss_average": torch.tensor([self.value], dtype=torch.float64)} if self.is_requested else {}

    def load_state(self, tensors: dict[str, Tensor]) -> None:
        """Restore the state; without one, as in a checkpoint without the request, the average starts with the next loss."""
        saved = tensors.get("loss_average")
        self.value = NO_LOSS if saved is None else float(saved)


def mean_of_averages(values: Sequence[float | None]) -> dict[str, float]:
    """Return the column of the history: the mean over the ranks that have a value; empty if none has."""
    known = [value for value in values if value is not None]
    return {"train_loss_average": sum(known) / len(known)} if known else {}
