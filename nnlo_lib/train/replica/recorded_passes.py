"""Forward and backward passes that a GPU repeats from a recording (a CUDA graph): train.compile: cuda_graph.

A small model's step consists of some hundred kernels of a few microseconds, and a process needs longer to start each of
them. A recording of all of them is started at once. It is made for each size of a batch, when the first batch of this size
comes, and repeats the same kernels on the same memory: Replica's vectors never move, so the gradient is where it always is.
"""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn

from nnlo_lib.comm.communicator import Communicator
from nnlo_lib.config import Run
from nnlo_lib.core.errors import UserError
from nnlo_lib.data.loading.loader import Batch
from nnlo_lib.data.readers.base import Inputs
from nnlo_lib.problems.base import Problem
from nnlo_lib.train.replica.device import seed_step, to_device
from nnlo_lib.train.replica.gradients import DeferredSums, LocalGradients, SampleTensors
from nnlo_lib.train.replica.model_build import compile_module
from nnlo_lib.train.replica.precision import Precision
from nnlo_lib.train.replica.preprocess import Preprocessor
from nnlo_lib.train.replica.replica import Replica
from nnlo_lib.train.replica.sync_batch_norm import PassCollectives, convert_sync_batch_norm

WARM_UP_PASSES = 3  # before a recording: libraries allocate memory and choose kernels in their first calls


@dataclass(frozen=True)
class Recording:
    """Recorded passes and their memory: stored samples as the input, loss and sums of the batch as the output."""

    graph: torch.cuda.CUDAGraph
    stored: tuple[Tensor, ...]
    labels: Tensor
    loss: Tensor
    sums: Tensor

    def replay(self, arrays: Inputs) -> None:
        """Compute loss, sums and gradient of the inputs and labels of a batch of the recorded size."""
        for memory, array in zip((*self.stored, self.labels), arrays, strict=True):
            memory.copy_(to_device(array, str(memory.device)))
        self.graph.replay()


class RecordedGradients(LocalGradients):
    """Computes the gradient of one rank's batch by a recording."""

    @cached_property
    def _recordings(self) -> dict[int, Recording]:
        """The recordings by size of a batch."""
        return {}

    def __call__(self, batch: Batch, seed: int, where: str, step: int) -> DeferredSums | None:
        if not batch.count:
            return super().__call__(batch, seed, where, step)
        if batch.count not in self._recordings:
            self._recordings[batch.count] = self._recorded(batch, step)
        recording = self._recordings[batch.count]
        # A recording draws from the seed at the time of the replay.
        seed_step(seed, str(self._replica.theta.device))
        self._comm.advance_clock(batch.count)
        self._replica.callbacks.begin("backward")
        recording.replay((*self._tensors.cropped(batch.inputs), batch.labels))
        self._replica.callbacks.end("backward")
        # Not the memory of the recording: the next batch is in it when the loss is known.
        *inputs, labels = (to_device(each, "cpu") for each in (*batch.inputs, batch.labels))
        self._checked(recording.loss, SampleTensors(tuple(inputs), labels, batch.ids), where, step)
        return lambda: recording.sums

    def _recorded(self, batch: Batch, step: int) -> Recording:
        """Record the passes of a batch of this size; nothing that a training step changes is changed."""
        device, replica = str(self._replica.theta.device), self._replica
        # Not the memory of the batch, which may be on the device already.
        stored = tuple(to_device(array, device).clone() for array in self._tensors.cropped(batch.inputs))
        labels = to_device(batch.labels, device).clone()
        kept = [(tensor, tensor.clone()) for tensor in (replica.buffers, *replica.counters)]

        def passes() -> tuple[Tensor, Tensor]:
            inputs = self._tensors.of_stored(stored)
            with self._precision.autocast_context():
                loss, sums = self._problem.compute_loss(replica.network, inputs, labels, step)
            replica.differentiate(loss)
            return loss.detach(), sums()

        # Not the default stream, in which nothing can be recorded.
        side, main = torch.cuda.Stream(), torch.cuda.current_stream()  # type: ignore[no-untyped-call]
        side.wait_stream(main)
        with torch.cuda.stream(side):
            for _ in range(WARM_UP_PASSES):
                passes()
        main.wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        try:
            # Threads that write checkpoints and read batches may use the GPU meanwhile.
            with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                loss, sums = passes()
        except RuntimeError as error:
            raise UserError(
                "train.compile: cuda_graph: the passes of this model cannot be recorded, for example because the model, the "
                f"loss or a metric reads a value from the GPU ({str(error).splitlines()[0]}); set train.compile: true or false"
            ) from error
        for tensor, before in kept:
            tensor.copy_(before)
        return Recording(graph, stored, labels, loss, sums)


def build_gradients(
    run: Run,
    comm: Communicator,
    module: nn.Module,
    problem: Problem,
    tensors: Preprocessor,
    precision: Precision,
    device: str,
    together: PassCollectives | None = None,
) -> tuple[Replica, LocalGradients]:
    """Return the replica of a model and its gradients, compiled or recorded as `train.compile` says.

    `together`: sums over ranks inside the passes, as of LocalGradients.
    """
    module = convert_sync_batch_norm(precision.prepare(module), together)
    replica = Replica(module, device, channels_last=run.train.channels_last)
    if run.train.compile is True:
        replica.network = compile_module(module, device)
    kind = RecordedGradients if run.train.compile == "cuda_graph" else LocalGradients
    return replica, kind(replica, problem, tensors, comm, precision, run.train.accumulate, together)
