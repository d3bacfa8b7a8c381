"""Packing of small integers: eight codes of b bits take b bytes."""

import torch
from torch import Tensor

CODES_PER_GROUP = 8  # codes that fill whole bytes


def packed_size(count: int, bits: int) -> int:
    """Return the bytes of `count` codes of `bits` bits each."""
    return -(-count // CODES_PER_GROUP) * bits


def pack(codes: Tensor, bits: int) -> Tensor:
    """Write codes (P,) of uint8, each below 2^bits, into (packed_size,) of uint8, the lowest bits first."""
    groups = torch.nn.functional.pad(codes, (0, -codes.numel() % CODES_PER_GROUP)).view(-1, CODES_PER_GROUP)
    words = torch.zeros(len(groups), dtype=torch.int64, device=codes.device)
    for place in range(CODES_PER_GROUP):
        words |= groups[:, place].long() << (bits * place)
    # Eight codes of b <= 8 bits fill the lowest b bytes of a word, which come first on little-endian hosts.
    return words.view(torch.uint8).view(-1, 8)[:, :bits].reshape(-1)


def unpack(packed: Tensor, bits: int, count: int) -> Tensor:
    """Return the codes that `pack` wrote, (count,) of uint8.

    Args:
        packed: output of `pack`, (packed_size,) of uint8.
        bits: bits per code.
        count: number of codes.
    """
    words = torch.zeros((packed.numel() // bits, 8), dtype=torch.uint8, device=packed.device)
    words[:, :bits] = packed.view(-1, bits)
    groups = words.view(torch.int64)
    # Also removes the copies of the sign bit that a shift of a negative int64 word brings in.
    mask = (1 << bits) - 1
    codes = [((groups >> (bits * place)) & mask).to(torch.uint8) for place in range(CODES_PER_GROUP)]
    return torch.cat(codes, dim=1).view(-1)[:count]


def as_bytes(values: Tensor) -> Tensor:
    """Return the memory of `values` as uint8; a copy only if it is not contiguous."""
    return values.reshape(-1).view(torch.uint8)


def concat_bytes(*parts: Tensor) -> Tensor:
    """Return the bytes of all parts; each must be a multiple of the next one's width."""
    # Tensor.view(dtype) can decode a part only if it begins at a multiple of the width of its values.
    return torch.cat([as_bytes(part) for part in parts])


def byte_size(vector: Tensor) -> int:
    """Return the bytes of the values of `vector`."""
    return vector.numel() * vector.element_size()
