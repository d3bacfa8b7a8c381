"""The random numbers of a payload."""

import torch

from nnlo_lib.streams import stream


def generator(seed: int, step: int, rank: int) -> torch.Generator:
    """Return the generator for what `rank` sends in `step`; on the CPU, so that all draw alike."""
    return torch.Generator().manual_seed(stream(seed, "compression", rank, step))
