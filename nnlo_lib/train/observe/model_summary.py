"""Summary of a model: its layers and the floating-point operations of one sample."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from nnlo_lib.models.layer_table_text import layer_table_text
from nnlo_lib.train.observe.layer_table import LayerRow, layer_table, model_flops


@dataclass(frozen=True)
class ModelSummary:
    """Layers of a model and `flops`, the operations of (forward, backward) of one sample, None if unknown."""

    layers: list[LayerRow]
    flops: tuple[int | None, int | None]

    @property
    def text(self) -> str:
        """The summary as a text table."""
        return layer_table_text(self.layers, self.flops)

    @property
    def as_dict(self) -> dict[str, Any]:
        """The summary as summary.json contains it."""
        forward, backward = self.flops
        return {"flops": {"forward": forward, "backward": backward}, "layers": self.layers}


def summarize_model(module: nn.Module, inputs: Sequence[Tensor]) -> ModelSummary:
    """Return the summary of a model (of a GAN: both networks); `inputs`: mini-batches of one sample."""
    # A GAN has no forward pass of its own; generator and critic together use all of its layers.
    if {"generator", "critic"} <= dict(module.named_children()).keys():
        noise = torch.zeros(1, int(module.latent), dtype=inputs[0].dtype, device=inputs[0].device)  # type: ignore[arg-type]
        module, inputs = _GeneratorAndCritic(module.generator, module.critic), (noise,)  # type: ignore[arg-type]
    return ModelSummary(layer_table(module, inputs), model_flops(module, inputs))


class _GeneratorAndCritic(nn.Module):
    """A generator followed by the critic that scores its samples."""

    def __init__(self, generator: nn.Module, critic: nn.Module) -> None:
        super().__init__()
        self.generator, self.critic = generator, critic

    def forward(self, noise: Tensor) -> Any:
        return self.critic(self.generator(noise))
