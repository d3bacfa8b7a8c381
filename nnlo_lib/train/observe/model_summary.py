"""A model described: its layers, and what a sample costs in it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from nnlo_lib.models.layer_table_text import layer_table_text
from nnlo_lib.train.observe.layer_table import LayerRow, layer_table, model_flops


@dataclass(frozen=True)
class ModelSummary:
    """flops: of the forward and the backward pass of one sample, None where they are not known."""

    layers: list[LayerRow]
    flops: tuple[int | None, int | None]

    @property
    def text(self) -> str:
        """A table for a terminal."""
        return layer_table_text(self.layers, self.flops)

    @property
    def as_dict(self) -> dict[str, Any]:
        """What summary.json says."""
        forward, backward = self.flops
        return {"flops": {"forward": forward, "backward": backward}, "layers": self.layers}


def summarize_model(module: nn.Module, inputs: Sequence[Tensor]) -> ModelSummary:
    """Describe a model that takes `inputs`, mini-batches of one sample; of a GAN both networks."""
    if {"generator", "critic"} <= dict(module.named_children()).keys():
        noise = torch.zeros(1, int(module.latent), dtype=inputs[0].dtype, device=inputs[0].device)  # type: ignore[arg-type]
        module, inputs = _Judged(module.generator, module.critic), (noise,)  # type: ignore[arg-type]
    return ModelSummary(layer_table(module, inputs), model_flops(module, inputs))


class _Judged(nn.Module):
    """A generator whose samples a critic scores."""

    def __init__(self, generator: nn.Module, critic: nn.Module) -> None:
        super().__init__()
        self.generator, self.critic = generator, critic

    def forward(self, noise: Tensor) -> Any:
        return self.critic(self.generator(noise))
