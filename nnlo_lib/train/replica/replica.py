"""Replica: a model as three flat vectors of parameters, gradients and floating-point buffers."""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate
from typing import NamedTuple

import torch
from torch import Size, Tensor, nn

from nnlo_lib.core.errors import UserError
from nnlo_lib.train.callback import Callbacks


class ParameterSlot(NamedTuple):
    """One parameter: the values [start, stop) of the flat vector, in its memory order."""

    name: str
    start: int
    numel: int
    shape: Size

    @property
    def stop(self) -> int:
        """Index after the last value, where the next parameter starts."""
        return self.start + self.numel


Layout = tuple[ParameterSlot, ...]


def layout_of_prefix(layout: Layout, prefix: str) -> tuple[slice, Layout]:
    """Return the slice of the parameters whose names start with `prefix`, and their layout within it.

    Raises UserError if no name starts with `prefix`, or if other parameters lie in between.
    """
    slots = [slot for slot in layout if slot.name.startswith(prefix)]
    if not slots:
        raise UserError(f"the model has no trainable parameter whose name starts with '{prefix}'")
    start, stop = slots[0].start, slots[-1].stop
    if sum(slot.numel for slot in slots) != stop - start:
        raise UserError(
            f"the parameters whose names start with '{prefix}' are not contiguous in the model; other parameters lie between them"
        )
    return slice(start, stop), tuple(slot._replace(start=slot.start - start) for slot in slots)


class Replica:
    """A model whose parameters, gradients and buffers are views into flat vectors.

    Algorithms change these vectors in place and never access layers. They are the contiguous vectors (parameters,) of
    `memory`, or new ones. With `channels_last`, 4-dimensional tensors, the weights of convolutions on images, are stored in
    the format in which these convolutions are fastest.
    """

    def __init__(
        self,
        module: nn.Module,
        device: str = "cpu",
        memory: tuple[Tensor, Tensor] | None = None,
        channels_last: bool = True,
    ) -> None:
        # `network`, which is trained, may become a compiled version.
        self.module = self.network = module.to(device)
        for tensor in (*module.parameters(), *module.buffers()):
            if channels_last and tensor.dim() == 4:
                tensor.data = tensor.data.to(memory_format=torch.channels_last)
        trained = {name: each for name, each in module.named_parameters() if each.requires_grad}
        if not trained:
            raise UserError("the model has no trainable parameter")
        self._parameters = parameters = list(trained.values())
        starts = accumulate((each.numel() for each in parameters), initial=0)
        self.layout: Layout = tuple(
            ParameterSlot(name, start, each.numel(), each.shape)
            for (name, each), start in zip(trained.items(), starts, strict=False)
        )
        values = _flatten([parameter.data for parameter in parameters])
        self.theta, grad = memory or (values, torch.zeros_like(values))
        # Memory from the caller does not contain the parameters yet.
        self.theta.copy_(values)
        for parameter, value in zip(parameters, _views(self.theta, parameters), strict=True):
            parameter.data = value
        # The optimizer gets the whole vector as one parameter, so that an update does not loop over layers.
        self._trainable = nn.Parameter(self.theta)
        self._take_gradient(grad)
        self._free: list[Tensor] | None = None
        # Floating-point buffers, for example batch-norm statistics, are flattened to (values,), the others are not.
        statistics = [buffer for buffer in module.buffers() if buffer.is_floating_point()]
        self.counters = [buffer for buffer in module.buffers() if not buffer.is_floating_point()]
        self.buffers = _flatten(statistics)
        for buffer, value in zip(statistics, _views(self.buffers, statistics), strict=True):
            buffer.data = value
        self.optimizer: torch.optim.Optimizer | None = None
        # layout of the parameters that the optimizer updates
        self.optimized = self.layout
        self._sum_over_ranks: Callable[[Tensor], None] | None = None
        self._trackers: list[GradientReadyTracker] = []
        self.clip_norm: float | None = None
        self.callbacks = Callbacks()

    def keep_part(self, part: slice, sum_over_ranks: Callable[[Tensor], None]) -> None:
        """Let the optimizer, which is set afterwards, update this part of the parameters; other ranks update the others."""
        self._trainable = nn.Parameter(self.theta[part])
        self._trainable.grad, self._sum_over_ranks = self.grad[part], sum_over_ranks
        ends = ((slot, max(slot.start, part.start), min(slot.stop, part.stop)) for slot in self.layout)
        cut = (slot._replace(start=start - part.start, numel=stop - start) for slot, start, stop in ends)
        self.optimized = tuple(slot for slot in cut if slot.numel > 0)

    def set_optimizer(self, optimizer: Callable[..., torch.optim.Optimizer], **options: object) -> None:
        """Use the optimizer that `optimizer` returns for [flat parameter] and `options`."""
        self._fresh = partial(optimizer, [self._trainable], **options)
        self.optimizer = self._fresh()

    @property
    def lr(self) -> float:
        """Learning rate of the next step."""
        assert self.optimizer is not None, "set_optimizer() has not been called"
        return float(self.optimizer.param_groups[0]["lr"])

    @lr.setter
    def lr(self, value: float) -> None:
        assert self.optimizer is not None, "set_optimizer() has not been called"
        self.optimizer.param_groups[0]["lr"] = value

    def reset_optimizer(self) -> None:
        """Replace the optimizer by a new one without moments, with the same learning rate."""
        lr = self.lr
        self.optimizer = self._fresh()
        self.lr = lr

    def share_gradient(self, free: list[Tensor]) -> None:
        """Hold `grad` from now on only from a backward pass to `release_gradient`; replicas give each other memory by `free`."""
        self._free = free
        self.release_gradient()

    def release_gradient(self) -> None:
        """Let the backward passes of other replicas use the memory of `grad`, if it is shared."""
        if self._free is not None:
            # More than one is free only after passes that overlapped.
            self._free[:] = [self.grad]
            del self.grad
            # Views, too, would keep the memory.
            for each in (self._trainable, *self._parameters):
                each.grad = None

    def clear_gradient(self) -> None:
        """Set `grad` to zero."""
        if not hasattr(self, "grad"):
            self._take_gradient(self._free.pop() if self._free else torch.empty_like(self.theta))
        # Not set to None, as zero_grad does: the gradients of the layers must remain views.
        self.grad.zero_()

    def _take_gradient(self, grad: Tensor) -> None:
        self.grad = self._trainable.grad = grad
        for parameter, gradient in zip(self._parameters, _views(grad, self._parameters), strict=True):
            parameter.grad = gradient

    def backward(self, loss: Tensor, first: bool = True, last: bool = True) -> None:
        """Add the gradient of a loss to `grad`; the `first` one of a step overwrites it, the `last` one makes parts of it final."""
        self.callbacks.begin("backward")
        self.differentiate(loss, first, last)
        self.callbacks.end("backward")

    def differentiate(self, loss: Tensor, first: bool = True, last: bool = False) -> None:
        """Do what `backward` does, without its callbacks; by default, no part of `grad` is reported as final."""
        if first:
            self.clear_gradient()
        for tracker in self._trackers:
            tracker.reset(last)
        loss.backward()  # type: ignore[no-untyped-call]

    def on_gradient_ready(self, ready: Callable[[int], None]) -> None:
        """Call `ready(start)` during backward passes when more of the gradient, grad[start:], is final."""
        self._trackers.append(GradientReadyTracker(self._parameters, ready))

    def step(self) -> None:
        """Clip the norm of `grad` to `clip_norm`, if set, and update `theta` by the optimizer."""
        assert self.optimizer is not None, "set_optimizer() has not been called"
        self.callbacks.begin("optimizer")
        if self.clip_norm is not None and not self._sum_over_ranks:
            nn.utils.clip_grad_norm_(self._trainable, self.clip_norm)
        elif self.clip_norm is not None and self._sum_over_ranks:
            squares = torch.linalg.vector_norm(self._trainable.grad, dtype=torch.float64).square()[None]
            self._sum_over_ranks(squares)
            nn.utils.clip_grads_with_norm_(self._trainable, self.clip_norm, squares[0].sqrt())
        self.optimizer.step()
        self.callbacks.end("optimizer")

    def state(self) -> dict[str, Tensor]:
        """Return every tensor that a resumed run needs, by name."""
        tensors = {"theta": self.theta, "buffers": self.buffers}
        tensors |= {f"counter.{i}": counter for i, counter in enumerate(self.counters)}
        if self.optimizer is not None:
            moments = self.optimizer.state[self._trainable]
            tensors |= {f"optimizer.{name}": value for name, value in moments.items() if value is not None}
        return tensors

    def load_state(self, tensors: dict[str, Tensor]) -> None:
        """Restore the tensors that `state` returned."""
        self.theta.copy_(tensors["theta"])
        self.buffers.copy_(tensors["buffers"])
        for i, counter in enumerate(self.counters):
            counter.copy_(tensors[f"counter.{i}"])
        if self.optimizer is None:
            return
        # Vectors, and counts of fused optimizers, go to the device of `theta`.
        fused = self.optimizer.defaults.get("fused")
        for name, value in tensors.items():
            if name.startswith("optimizer."):
                place = self.theta.device if value.dim() or fused else value.device
                moment = value.to(place, copy=True)
                self.optimizer.state[self._trainable][name.removeprefix("optimizer.")] = moment


def _flatten(tensors: Sequence[Tensor]) -> Tensor:
    if len({(tensor.dtype, tensor.device) for tensor in tensors}) > 1:
        raise UserError(
            "the model mixes dtypes or devices; convert all parameters and buffers, for example by model.float()"
        )
    # In memory order, so that `_views` can give channels-last weights their strides; a reshape would reorder them.
    flat = [tensor.detach().as_strided((tensor.numel(),), (1,)) for tensor in tensors]
    return torch.cat(flat) if flat else torch.empty(0)


def _views(vector: Tensor, like: Sequence[Tensor]) -> list[Tensor]:
    """Cut `vector` into tensors with the shapes and memory layouts of `like`."""
    pieces = torch.split(vector, [tensor.numel() for tensor in like]) if like else ()
    pairs = zip(pieces, like, strict=True)
    return [piece.as_strided(tensor.shape, tensor.stride()) for piece, tensor in pairs]


class GradientReadyTracker:
    """Calls `ready(start)` during backward passes when more of a flat gradient, grad[start:], is final.

    Backward passes finish parameters roughly in reverse order of their registration. If a parameter gets no
    gradient, `start` stays above it.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], ready: Callable[[int], None]) -> None:
        self._starts = list(accumulate((parameter.numel() for parameter in parameters), initial=0))
        self._ready = ready
        self.reset()
        for number, parameter in enumerate(parameters):
            parameter.register_post_accumulate_grad_hook(partial(self._finished, number))  # type: ignore[no-untyped-call]

    def reset(self, last: bool = True) -> None:
        """Prepare for a new backward pass; its gradients are final only if it is the `last` one of a step."""
        self._last = last
        self._final: set[int] = set()
        self._mark = len(self._starts) - 1  # the gradients of parameters[mark:] are final

    def _finished(self, number: int, _: Tensor) -> None:
        if not self._last:
            return
        self._final.add(number)
        before = self._mark
        # Parameters may finish in any order, but only a contiguous end of the vector is final.
        while self._mark - 1 in self._final:
            self._mark -= 1
        if self._mark < before:
            self._ready(self._starts[self._mark])
