"""The recurrent network of NNLO's search for hls4ml's jet tagging."""

from itertools import pairwise

import torch
from torch import Tensor, nn

from nnlo_lib.models.activations import activation_named


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


def hls4ml_gru(
    shape: tuple[int, ...],
    classes: int,
    units: int = 50,
    neurons: int = 100,
    layers: int = 4,
    activation: str = "elu",
    dropout: float = 0.1,
) -> nn.Module:
    """Build a GRU and `layers` dense layers for samples (features, particles) (45,955 parameters for (16, 150)).

    Args:
        shape: number of features and of particles.
        classes: number of outputs.
        units: units of the GRU.
        neurons: units of each dense layer.
        layers: number of dense layers.
        activation: activation of the dense layers.
        dropout: probability of dropout after the GRU and after each dense layer.
    """
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
