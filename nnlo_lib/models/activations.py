"""Activations by the names that users give them."""

from torch import nn

ACTIVATIONS = {"relu": nn.ReLU, "elu": nn.ELU, "selu": nn.SELU, "tanh": nn.Tanh, "sigmoid": nn.Sigmoid}


def activation_named(name: str) -> type[nn.Module]:
    """Return the class of an activation. Raises ValueError."""
    if name not in ACTIVATIONS:
        raise ValueError(f"there is no activation '{name}'; there are {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[name]
