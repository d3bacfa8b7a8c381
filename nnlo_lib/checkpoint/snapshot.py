"""A copy of a rank's tensors in host memory, made while the training stands still and written while it goes on."""

import torch
from torch import Tensor


class Snapshot:
    """Memory that is kept from checkpoint to checkpoint: a first touch costs more than the copy."""

    def __init__(self) -> None:
        self._rooms: dict[str, Tensor] = {}

    def take(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """Copy `tensors`; the copies hold until the next call."""
        self._rooms = {name: self._room(name, tensor) for name, tensor in tensors.items()}
        for name, tensor in tensors.items():
            self._rooms[name].copy_(tensor, non_blocking=True)
        if any(tensor.is_cuda for tensor in tensors.values()):
            torch.cuda.synchronize()
        return self._rooms

    def _room(self, name: str, tensor: Tensor) -> Tensor:
        room = self._rooms.get(name)
        if room is not None and (room.shape, room.dtype) == (tensor.shape, tensor.dtype):
            return room
        return torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=tensor.is_cuda)
