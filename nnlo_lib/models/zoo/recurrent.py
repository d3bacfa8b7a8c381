"""Recurrent classifiers: NNLO's GRU for hls4ml's jet tagging, Theano-MPI's LSTM for film reviews."""

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from nnlo_lib.models.blocks import activation_named

PADDING = 0  # word number that pads short texts


def hls4ml_gru(
    shape: tuple[int, ...],
    classes: int,
    units: int = 50,
    neurons: int = 100,
    layers: int = 4,
    activation: str = "elu",
    dropout: float = 0.1,
) -> nn.Module:
    """Build a GRU and `layers` dense layers for samples (features, particles) (45,955 parameters for (16, 150))."""
    if len(shape) != 2:
        raise ValueError(f"hls4ml_gru requires samples (features, particles), but the samples are {shape}")
    widths = [units, *[neurons] * layers]
    dense = [_dense(a, b, activation, dropout) for a, b in pairwise(widths)]
    recurrent = [Transposed(), GRU(shape[0], units), nn.Dropout(dropout)]
    return nn.Sequential(*recurrent, *dense, nn.Linear(widths[-1], classes))


def _dense(inputs: int, outputs: int, activation: str, dropout: float) -> nn.Module:
    linear = nn.Linear(inputs, outputs)
    nn.init.uniform_(linear.weight, -((3 / inputs) ** 0.5), (3 / inputs) ** 0.5)  # LeCun uniform
    nn.init.zeros_(linear.bias)
    return nn.Sequential(linear, activation_named(activation)(), nn.Dropout(dropout))


class GRU(nn.Module):
    """A gated recurrent unit (Cho et al. 2014, arXiv 1406.1078, equations 5 to 8), reset before the product.

    torch's GRU resets after the product and has two biases, so that sums and numbers of parameters differ.
    The gates are Keras's hard sigmoids, clip(0.2 x + 0.5, 0, 1).
    """

    def __init__(self, inputs: int, units: int) -> None:
        super().__init__()
        self.units = units
        self.inputs = nn.Linear(inputs, 3 * units)
        self.gates = nn.Linear(units, 2 * units, bias=False)
        self.candidate = nn.Linear(units, units, bias=False)
        nn.init.xavier_uniform_(self.inputs.weight)
        nn.init.zeros_(self.inputs.bias)
        nn.init.orthogonal_(self.gates.weight)
        nn.init.orthogonal_(self.candidate.weight)

    def forward(self, series: Tensor) -> Tensor:
        """Return the last state (samples, units) from (samples, steps, inputs)."""
        state = series.new_zeros(len(series), self.units)
        for given in self.inputs(series).unbind(1):
            for_gates, for_candidate = given.split([2 * self.units, self.units], 1)
            gates = (0.2 * (for_gates + self.gates(state)) + 0.5).clamp(0, 1)
            update, reset = gates.chunk(2, 1)
            candidate = torch.tanh(for_candidate + self.candidate(reset * state))
            state = update * state + (1 - update) * candidate
        return state


class Transposed(nn.Module):
    """Exchange the two dimensions of a sample."""

    def forward(self, series: Tensor) -> Tensor:
        """Return (samples, b, a) from (samples, a, b)."""
        return series.transpose(1, 2)


def lstm(
    shape: tuple[int, ...], classes: int, words: int = 10_000, units: int = 128, dropout: float = 0.5
) -> nn.Module:
    """Build Theano-MPI's network for texts of `shape` (steps,) with numbers below `words` (1,411,842 parameters)."""
    if len(shape) != 1:
        raise ValueError(f"lstm requires texts of word numbers (steps,), but the samples are {shape}")
    return Texts(words, units, classes, dropout)


class Texts(nn.Module):
    """Scores from the mean of the states after each word, without the padding at the end of a text."""

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


class Gates(nn.LSTM):
    """An LSTM (Hochreiter and Schmidhuber 1997) with one bias instead of torch's two: the weight of an additional input that is always 1."""

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
