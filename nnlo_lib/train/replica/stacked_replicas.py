"""The replicas of all simulated ranks as one matrix, whose gradients are computed together.

A rank that requests its gradient sleeps, on the virtual clock, for the time of the computation; meanwhile
other ranks request their gradients. The first rank to wake up computes all requested gradients in a few large
calls. This works for any algorithm, synchronous or not.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from nnlo_lib.comm.communicator import Communicator
from nnlo_lib.data.loading.loader import Batch
from nnlo_lib.data.readers.base import Array, Indices
from nnlo_lib.data.store.split import Split
from nnlo_lib.models.stacked import StackedNetwork, stack_network
from nnlo_lib.problems.base import refuse_regularization
from nnlo_lib.problems.supervised import SupervisedProblem
from nnlo_lib.train.replica.gradients import DeferredSums, SampleTensors, loss_advice
from nnlo_lib.train.replica.precision import Precision, diverged_error
from nnlo_lib.train.replica.preprocess import Preprocessor
from nnlo_lib.train.replica.replica import Replica

MAX_SAMPLES_PER_CALL = 1024  # bounds the memory of one call; the speed hardly depends on it


@dataclass(frozen=True)
class GradientRequest:
    """A gradient that a rank waits for."""

    batch: Batch
    seed: int
    where: str
    step: int


class ReplicaStack:
    """Holds the replicas of all simulated ranks: row i of theta and grad, (ranks, parameters), belongs to rank i."""

    def __init__(self, ranks: int) -> None:
        self.ranks = ranks
        self.replicas: dict[int, Replica] = {}
        self._buffers: dict[int, dict[str, Tensor]] = {}
        self._requests: dict[int, GradientRequest] = {}
        self._sums: dict[int, Tensor] = {}
        self._measured: tuple[float, Tensor] = (-1, torch.empty(0))

    def add(
        self, rank: int, module: nn.Module, tensors: Preprocessor, problem: SupervisedProblem, device: str,
        channels_last: bool = True,
    ) -> Replica:  # fmt: skip
        """Return a replica with row `rank` of theta and of grad as its vectors."""
        if not self.replicas:
            size = sum(each.numel() for each in module.parameters() if each.requires_grad)
            dtype = next(module.parameters()).dtype
            self.theta = torch.zeros(self.ranks, size, dtype=dtype, device=device)
            self.grad = torch.zeros_like(self.theta)
            self.tensors, self.problem = tensors, problem
            example = tuple(torch.randn(3, *shape, dtype=dtype, device=device) for shape in tensors.shapes)
            self.network: StackedNetwork = stack_network(module.to(device), example)
            refuse_regularization(
                module,
                "which parallel.simulation.compute: batched does not support; set parallel.simulation.compute: exact",
            )
        self.replicas[rank] = Replica(module, device, (self.theta[rank], self.grad[rank]), channels_last)
        self._buffers[rank] = dict(module.named_buffers())
        self._layout = [(name, each) for name, each in module.named_parameters() if each.requires_grad]
        return self.replicas[rank]

    def gradient(self, rank: int, comm: Communicator, request: GradientRequest) -> Tensor:
        """Compute a rank's gradient, which sleeps meanwhile on the clock of `comm`, together with others; return its sums."""
        self._requests[rank] = request
        comm.advance_clock_and_yield(request.batch.count)
        # Another rank may have computed this gradient while this one slept.
        if rank in self._requests:
            requests, self._requests = self._requests, {}
            width = max(each.batch.count for each in requests.values())
            for ranks in self._portions(sorted(requests), width):
                self._compute(ranks, [requests[rank] for rank in ranks])
        return self._sums.pop(rank)

    def _portions(self, ranks: list[int], width: int) -> Iterator[list[int]]:
        most = max(1, MAX_SAMPLES_PER_CALL // width)
        pieces = -(-len(ranks) // most)
        yield from (part.tolist() for part in np.array_split(np.array(ranks), pieces))

    def _compute(self, ranks: list[int], requests: list[GradientRequest]) -> None:
        counts = [request.batch.count for request in requests]
        width = max(counts)
        inputs, labels = self.tensors(
            tuple(
                _padded(arrays, width)
                for arrays in zip(*(request.batch.inputs for request in requests), strict=True)
            ),
            _padded([request.batch.labels for request in requests], width),
        )
        self._prepare(ranks, counts, requests)
        parameters = self._parameters(ranks)
        scores = self.network(*inputs)
        losses = self.problem.training_losses(scores, labels)
        real = torch.tensor(counts, device=losses.device)
        # Padding has weight 0, so that each rank's loss is the mean over its own samples.
        is_real = torch.arange(width, device=losses.device) < real[:, None]
        # In the type of the losses: a quotient of integers would be rounded to float32.
        weights = is_real.to(losses.dtype) / real[:, None]
        means = (losses.view(len(ranks), width) * weights).sum(1)
        for place, (loss, request) in enumerate(zip(means.tolist(), requests, strict=True)):
            if not math.isfinite(loss):
                part = slice(place * width, place * width + request.batch.count)
                samples = SampleTensors(tuple(each[part] for each in inputs), labels[part], request.batch.ids)
                precision = Precision(str(self.theta.dtype).removeprefix("torch."), str(self.theta.device))
                theta = self.theta[ranks[place]]
                advice = loss_advice(samples, precision, theta, request.step, request.where)
                raise diverged_error(loss, request.where, advice)
        # The ranks share no parameters, so the gradient of the sum contains the gradient of each rank.
        gradients = torch.autograd.grad(means.sum(), parameters, allow_unused=True)
        rows = _rows(self.grad, ranks)
        for (_, view), gradient in zip(self._views(rows), gradients, strict=True):
            view.zero_() if gradient is None else view.copy_(gradient)
        # Rows of ranks that are not consecutive are a copy.
        if rows.data_ptr() != self.grad[ranks[0]].data_ptr():
            self.grad[ranks] = rows
        sums = self.problem.sums_by_node(scores, labels, losses, real)
        self._sums.update(zip(ranks, sums, strict=True))

    def _prepare(self, ranks: list[int], counts: list[int], requests: Sequence[GradientRequest] = ()) -> None:
        nodes = self.network.nodes
        self.network.module.train(bool(requests))
        nodes.counts = counts
        nodes.buffers = [self._buffers[rank] for rank in ranks]
        if self.network.draws_random_numbers:
            # Each rank draws from its own stream, so that dropout has the bits of ranks that compute alone.
            generator = torch.Generator(self.theta.device)
            nodes.streams = [generator.manual_seed(request.seed).get_state() for request in requests]

    def _parameters(self, ranks: list[int]) -> list[Tensor]:
        """Set the network's parameters to the rows of these ranks; return the parameters."""
        views = list(self._views(_rows(self.theta, ranks)))
        self.network.nodes.tensors = {name: view.requires_grad_() for name, view in views}
        return list(self.network.nodes.tensors.values())

    def _views(self, rows: Tensor) -> Iterator[tuple[str, Tensor]]:
        """Yield (name, view (n, *shape)) of each parameter in `rows` (n, parameters), in replica layout."""
        place = rows.storage_offset()
        for name, parameter in self._layout:
            size, stride = (len(rows), *parameter.shape), (rows.stride(0), *parameter.stride())
            yield name, rows.as_strided(size, stride, place)
            place += parameter.numel()

    @torch.no_grad()
    def evaluate_replicas(self, epoch: float, split: Split, samples: Indices) -> Tensor:
        """Return the sums of each rank's model over some samples of a split, (ranks, 1 + names).

        `epoch`, the number of epochs so far, is the key of the cache: the first rank that calls computes the sums for all.
        """
        if self._measured[0] != epoch:
            size = max(50, MAX_SAMPLES_PER_CALL // self.ranks)
            starts = range(0, len(samples), size)
            parts = [self._measure_some(split, samples[start : start + size]) for start in starts]
            self._measured = (epoch, torch.stack(parts).sum(0))
        return self._measured[1]

    def _measure_some(self, split: Split, samples: Indices) -> Tensor:
        inputs, labels = self.tensors(*split.take(samples))
        sums = []
        for ranks in self._portions(sorted(self.replicas), len(samples)):
            self._prepare(ranks, [len(samples)] * len(ranks))
            self._parameters(ranks)
            scores = self.network(*(_repeated(tensor, len(ranks)) for tensor in inputs))
            repeated_labels = _repeated(labels, len(ranks))
            counts = torch.tensor(self.network.nodes.counts, device=scores.device)
            losses = self.problem.sample_losses(scores, repeated_labels)
            sums.append(self.problem.sums_by_node(scores, repeated_labels, losses, counts))
        return torch.cat(sums)


class StackedGradients:
    """Computes one rank's gradients together with the gradients of other simulated ranks."""

    def __init__(self, stack: ReplicaStack, comm: Communicator) -> None:
        self._stack, self._comm = stack, comm

    def __call__(self, batch: Batch, seed: int, where: str, step: int) -> DeferredSums | None:
        if not batch.count:
            self._stack.replicas[self._comm.rank].grad.zero_()
            return None
        sums = self._stack.gradient(self._comm.rank, self._comm, GradientRequest(batch, seed, where, step))
        return lambda: sums

    def finish(self) -> None:
        """Do nothing: calls raise their errors at once."""


def _rows(matrix: Tensor, ranks: list[int]) -> Tensor:
    """Return rows of a matrix: a view if the ranks are consecutive, else a copy."""
    first, last = ranks[0], ranks[-1]
    return matrix.detach()[first : last + 1] if last - first + 1 == len(ranks) else matrix.detach()[ranks]


def _padded(arrays: Sequence[Array], width: int) -> Array:
    """Return the n arrays, each padded with a sample to `width` samples, as (n * width, ...)."""
    total = np.empty((len(arrays), width, *arrays[0].shape[1:]), arrays[0].dtype)
    # A loss may be NaN or infinite for zeros, and so would be its product with the weight 0 of padding.
    padding = next(array[0] for array in arrays if len(array))
    for place, array in zip(total, arrays, strict=True):
        place[: len(array)], place[len(array) :] = array, padding
    return total.reshape(-1, *total.shape[2:])


def _repeated(tensor: Tensor, times: int) -> Tensor:
    return tensor.expand(times, *tensor.shape).reshape(-1, *tensor.shape[1:])
