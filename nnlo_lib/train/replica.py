"""A model as one flat vector of parameters, one of gradients, one of non-trained state."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from nnlo_lib.errors import UserError
from nnlo_lib.train.watermark import Watermark


class Memory(NamedTuple):
    """Where a replica's parameters and gradients shall live: two contiguous vectors."""

    theta: Tensor
    grad: Tensor


class Replica:
    """A model whose parameters, gradients and buffers are views into flat vectors.

    theta, grad: (parameters,); buffers: (floating-point buffer values,), such as batch-norm statistics.
    Algorithms change these vectors in place and never see a layer. Images are laid out channels last, which
    convolutions on CPUs and GPUs like best.
    """

    def __init__(self, module: nn.Module, device: str = "cpu", memory: Memory | None = None) -> None:
        self.module = module.to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]
        parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
        if not parameters:
            raise UserError("the model has no trainable parameter")
        values = _flatten([parameter.data for parameter in parameters])
        self.theta, self.grad = memory or (values, torch.zeros_like(values))
        self.theta.copy_(values)
        for parameter, value, gradient in zip(
            parameters, _views(self.theta, parameters), _views(self.grad, parameters), strict=True
        ):
            parameter.data, parameter.grad = value, gradient
        statistics = [buffer for buffer in module.buffers() if buffer.is_floating_point()]
        self.counters = [buffer for buffer in module.buffers() if not buffer.is_floating_point()]
        self.buffers = _flatten(statistics)
        for buffer, value in zip(statistics, _views(self.buffers, statistics), strict=True):
            buffer.data = value
        self.optimizer: torch.optim.Optimizer | None = None
        self._trainable = nn.Parameter(self.theta)
        self._trainable.grad = self.grad
        self._parameters = parameters
        self._watermarks: list[Watermark] = []

    def use(self, optimizer: type[torch.optim.Optimizer], **options: object) -> None:
        """Step with `optimizer`, which sees one flat parameter."""
        self.optimizer = optimizer([self._trainable], **options)  # type: ignore[arg-type]

    @property
    def lr(self) -> float:
        """Learning rate of the next step."""
        assert self.optimizer is not None, "use() chooses the optimizer"
        return float(self.optimizer.param_groups[0]["lr"])

    @lr.setter
    def lr(self, value: float) -> None:
        assert self.optimizer is not None, "use() chooses the optimizer"
        self.optimizer.param_groups[0]["lr"] = value

    def forget(self) -> None:
        """Let the optimizer start afresh, without moments."""
        assert self.optimizer is not None, "use() chooses the optimizer"
        self.optimizer.state.clear()

    def forward(self, *inputs: Tensor) -> Tensor:
        """Apply the model to a mini-batch."""
        output: Tensor = self.module(*inputs)
        return output

    def backward(self, loss: Tensor) -> None:
        """Overwrite `grad` by the gradient of `loss`."""
        self.grad.zero_()
        for watermark in self._watermarks:
            watermark.reset()
        loss.backward()  # type: ignore[no-untyped-call]

    def watch(self, ready: Callable[[int], None]) -> None:
        """Call `ready(start)` during backward passes, each time that more of the gradient, grad[start:], is final."""
        self._watermarks.append(Watermark(self._parameters, ready))

    def step(self) -> None:
        """Let the optimizer move `theta` along `grad`."""
        assert self.optimizer is not None, "use() chooses the optimizer"
        self.optimizer.step()

    def state(self) -> dict[str, Tensor]:
        """Return every tensor that a resumed run needs, by name."""
        tensors = {"theta": self.theta, "buffers": self.buffers}
        tensors |= {f"counter.{i}": counter for i, counter in enumerate(self.counters)}
        if self.optimizer is not None:
            moments = self.optimizer.state[self._trainable]
            tensors |= {f"optimizer.{name}": value for name, value in moments.items() if value is not None}
        return tensors

    def load_state(self, tensors: dict[str, Tensor]) -> None:
        """Restore what `state` returned."""
        self.theta.copy_(tensors["theta"])
        self.buffers.copy_(tensors["buffers"])
        for i, counter in enumerate(self.counters):
            counter.copy_(tensors[f"counter.{i}"])
        moments = {
            name.removeprefix("optimizer."): value.clone()
            for name, value in tensors.items()
            if name.startswith("optimizer.")
        }
        if moments and self.optimizer is not None:
            self.optimizer.state[self._trainable].update(moments)


def _flatten(tensors: Sequence[Tensor]) -> Tensor:
    if len({(tensor.dtype, tensor.device) for tensor in tensors}) > 1:
        raise UserError("the model mixes number types or devices; use one, for example model.float()")
    return torch.cat([_in_memory_order(tensor.detach()) for tensor in tensors]) if tensors else torch.empty(0)


def _in_memory_order(tensor: Tensor) -> Tensor:
    return tensor.as_strided((tensor.numel(),), (1,))


def _views(vector: Tensor, like: Sequence[Tensor]) -> list[Tensor]:
    """Cut `vector` into tensors with the shapes and memory layouts of `like`."""
    pieces = torch.split(vector, [tensor.numel() for tensor in like]) if like else ()
    return [
        piece.as_strided(tensor.shape, tensor.stride()) for piece, tensor in zip(pieces, like, strict=True)
    ]
