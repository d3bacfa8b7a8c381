"""Background threads and host copies for checkpoints that are written while the training continues."""

from collections.abc import Callable
from threading import Thread

import torch
from torch import Tensor


def error_text(error: Exception) -> str:
    """Return the error's message, with the type of the error unless it is an OSError."""
    return str(error) if isinstance(error, OSError) else f"{type(error).__name__}: {error}"


class BackgroundTask(Thread):
    """Run `work` in a thread that does not keep the process alive.

    Attributes:
        failure: the error message if `work` failed, else an empty string.
    """

    def __init__(self, work: Callable[[], None]) -> None:
        super().__init__(daemon=True)
        self._work = work
        self.failure = ""
        self.start()

    def run(self) -> None:
        """Run `work`; record an exception in `failure`, so that the training continues."""
        try:
            self._work()
        except Exception as error:
            self.failure = error_text(error)

    def wait_for_error(self) -> str:
        """Wait for the end; return the error message, or an empty string after success."""
        self.join()
        return self.failure


class HostSnapshot:
    """Host memory that is reused by later checkpoints: the first touch of memory costs more than the copy."""

    def __init__(self) -> None:
        self._buffers: dict[str, Tensor] = {}

    def copy_to_host(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return copies of `tensors` in host memory, valid until the next call."""
        self._buffers = {name: self._buffer(name, tensor) for name, tensor in tensors.items()}
        for name, tensor in tensors.items():
            self._buffers[name].copy_(tensor, non_blocking=True)
        if any(tensor.is_cuda for tensor in tensors.values()):
            # Copies from a GPU to pinned memory are asynchronous; they must end before the training changes
            # the tensors.
            torch.cuda.synchronize()
        return self._buffers

    def _buffer(self, name: str, tensor: Tensor) -> Tensor:
        buffer = self._buffers.get(name)
        # Shapes may change from one checkpoint to the next, for example of histograms.
        if buffer is not None and (buffer.shape, buffer.dtype) == (tensor.shape, tensor.dtype):
            return buffer
        return torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=tensor.is_cuda)
