"""What a model is made of, for people."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn


@torch.no_grad()
def layer_table(module: nn.Module, shapes: Sequence[tuple[int, ...]]) -> list[dict[str, Any]]:
    """Return name, type, output shape (of one sample) and parameters of each leaf layer, in order of use."""
    rows: list[dict[str, Any]] = []

    def note(name: str, layer: nn.Module, output: object) -> None:
        size = list(output.shape[1:]) if isinstance(output, Tensor) else []
        count = sum(parameter.numel() for parameter in layer.parameters())
        rows.append({"name": name, "type": type(layer).__name__, "shape": size, "parameters": count})

    hooks = [
        layer.register_forward_hook(lambda layer, _, output, name=name: note(name, layer, output))
        for name, layer in module.named_modules()
        if not list(layer.children())
    ]
    device = next(module.parameters()).device
    was_training = module.training
    module.eval()(*(torch.zeros(1, *shape, device=device) for shape in shapes))
    module.train(was_training)
    for hook in hooks:
        hook.remove()
    return rows


def as_text(rows: list[dict[str, Any]]) -> str:
    """Format the layer table for a terminal."""
    lines = [f"{'layer':<14}{'type':<14}{'output':<18}{'parameters':>12}"]
    for row in rows:
        size = " x ".join(map(str, row["shape"]))
        lines.append(f"{row['name']:<14}{row['type']:<14}{size:<18}{row['parameters']:>12,}")
    lines.append(f"{'total':<46}{sum(row['parameters'] for row in rows):>12,}")
    return "\n".join(lines)
