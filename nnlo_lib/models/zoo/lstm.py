"""Theano-MPI's network of film reviews: LSTM (Hochreiter and Schmidhuber 1997) and the mean of its states."""

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

PADDING = 0  # word number that pads short texts


class Gates(nn.LSTM):
    """An LSTM with one bias instead of torch's two: the weight of an additional input that is always 1."""

    def __init__(self, inputs: int, units: int) -> None:
        super().__init__(inputs + 1, units, bias=False, batch_first=True)
        # torch stacks the matrices of the four gates, but each is orthogonal by itself. The last column is
        # the bias.
        for weight in self.parameters():
            for gate in weight.data.chunk(4):
                nn.init.orthogonal_(gate)
        nn.init.zeros_(next(self.parameters()).data[:, -1:])

    def forward(self, series: Tensor) -> Tensor:  # type: ignore[override]
        """Return the states (samples, steps, units) from (samples, steps, inputs)."""
        states: Tensor = super().forward(pad(series, (0, 1), value=1.0))[0]
        return states


class Texts(nn.Module):
    """Scores from the mean of the states after each word, without the padding at the end of a text.

    Args:
        words: size of the vocabulary.
        units: units of the embedding and of the LSTM.
        classes: number of outputs.
        dropout: probability of dropout before the last layer.
    """

    def __init__(self, words: int, units: int, classes: int, dropout: float) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, units)
        nn.init.uniform_(self.embedding.weight, 0, 0.01)
        self.lstm = Gates(units, units)
        self.last = nn.Sequential(nn.Dropout(dropout), nn.Linear(units, classes))

    def forward(self, texts: Tensor) -> Tensor:
        """Return (samples, classes) from word numbers (samples, steps)."""
        texts = texts.long()
        real = (texts != PADDING).unsqueeze(2)
        states = torch.where(real, self.lstm(self.embedding(texts)), 0.0)
        scores: Tensor = self.last(states.sum(1) / real.sum(1).clamp(min=1))
        return scores


def lstm(
    shape: tuple[int, ...], classes: int, words: int = 10_000, units: int = 128, dropout: float = 0.5
) -> nn.Module:
    """Build the network for texts of `shape` (steps,) with numbers below `words` (1,411,842 parameters).

    Args:
        shape: number of words of a text, as (steps,).
        classes: number of outputs.
        words: size of the vocabulary.
        units: units of the embedding and of the LSTM.
        dropout: probability of dropout before the last layer.
    """
    if len(shape) != 1:
        raise ValueError(f"lstm requires texts of word numbers (steps,), but the samples are {shape}")
    return Texts(words, units, classes, dropout)
