"""Activation functions by the names used in experiments."""

from torch import nn

ACTIVATIONS = {"relu": nn.ReLU, "elu": nn.ELU, "selu": nn.SELU, "tanh": nn.Tanh, "sigmoid": nn.Sigmoid}


def activation_named(name: str) -> type[nn.Module]:
    """Return the activation class called `name`. Raises ValueError if the name is unknown."""
    if name not in ACTIVATIONS:
        raise ValueError(f"unknown activation '{name}'; use one of {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[name]
