"""Numbers as bytes and back."""

import torch
from torch import Tensor


def as_bytes(values: Tensor) -> Tensor:
    """Return the memory of `values` as uint8; a copy only if it is not contiguous."""
    return values.reshape(-1).view(torch.uint8)


def joined(*parts: Tensor) -> Tensor:
    """Return the bytes of all parts; each must be a multiple of the next one's width."""
    return torch.cat([as_bytes(part) for part in parts])


def byte_size(vector: Tensor) -> int:
    """Return the bytes of the values of `vector`."""
    return vector.numel() * vector.element_size()
