"""Activation functions by their names in experiments."""

from torch import nn

ACTIVATIONS = {"relu": nn.ReLU, "elu": nn.ELU, "selu": nn.SELU, "tanh": nn.Tanh, "sigmoid": nn.Sigmoid}


def activation_named(name: str) -> type[nn.Module]:
    """Return the activation class called `name`. Raises ValueError if there is no activation of that name."""
    if name not in ACTIVATIONS:
        raise ValueError(f"there is no activation '{name}'; there are {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[name]
