"""Small integers side by side: eight codes of b bits are b bytes."""

import torch
from torch import Tensor

GROUP = 8  # codes that fill whole bytes


def packed_size(count: int, bits: int) -> int:
    """Return the bytes of `count` codes of `bits` bits each."""
    return -(-count // GROUP) * bits


def pack(codes: Tensor, bits: int) -> Tensor:
    """Write codes (P,) of uint8, each below 2^bits, into (packed_size,) of uint8, the lowest bits first."""
    groups = torch.nn.functional.pad(codes, (0, -codes.numel() % GROUP)).view(-1, GROUP)
    words = torch.zeros(len(groups), dtype=torch.int64, device=codes.device)
    for place in range(GROUP):
        words |= groups[:, place].long() << (bits * place)
    return words.view(torch.uint8).view(-1, 8)[:, :bits].reshape(-1)


def unpack(packed: Tensor, bits: int, count: int) -> Tensor:
    """Return the `count` codes, (count,) of uint8, that `pack` wrote."""
    words = torch.zeros((packed.numel() // bits, 8), dtype=torch.uint8, device=packed.device)
    words[:, :bits] = packed.view(-1, bits)
    groups = words.view(torch.int64)
    mask = (1 << bits) - 1
    codes = [((groups >> (bits * place)) & mask).to(torch.uint8) for place in range(GROUP)]
    return torch.cat(codes, dim=1).view(-1)[:count]
