"""Optimizer that updates a flat parameter in pieces, so that intermediate results stay in the CPU cache."""

from typing import Any

import torch
from torch import Tensor, nn

CHUNK_SIZE = 1 << 17  # elements of a piece


class ChunkedOptimizer(torch.optim.Optimizer):
    """Applies an element-wise update rule that has no fused kernel to one flat parameter, in pieces.

    The optimizer state describes the whole parameter: vectors, of which the pieces have views, and counts,
    which are equal for all pieces.
    """

    def __init__(
        self, parameters: list[nn.Parameter], kind: type[torch.optim.Optimizer], **options: Any
    ) -> None:
        super().__init__(parameters, {"lr": options["lr"]})
        (self._whole,) = parameters
        self._pieces = [nn.Parameter(piece) for piece in torch.split(self._whole.detach(), CHUNK_SIZE)]
        self._rule = kind(self._pieces, **options)

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Update each piece with its part of the gradient."""
        assert self._whole.grad is not None, "the flat parameter has no gradient"
        for piece, gradient in zip(self._pieces, torch.split(self._whole.grad, CHUNK_SIZE), strict=True):
            piece.grad = gradient
        self._rule.param_groups[0]["lr"] = self.param_groups[0]["lr"]
        # The state may have been loaded from a checkpoint, so the pieces get views of it in each step.
        moments = self.state[self._whole]
        if moments:
            self._distribute(moments)
        self._rule.step()
        first = self._rule.state[self._pieces[0]]
        for name, value in first.items():
            if not value.dim():
                moments[name] = value
            # Only the first step creates vectors; later ones update the views in place.
            elif name not in moments:
                moments[name] = torch.cat([self._rule.state[piece][name] for piece in self._pieces])

    def _distribute(self, moments: dict[str, Tensor]) -> None:
        """Give each piece views of the moments and its own copies of the counts."""
        parts = {name: torch.split(value, CHUNK_SIZE) for name, value in moments.items() if value.dim()}
        counts = {name: value for name, value in moments.items() if not value.dim()}
        for number, piece in enumerate(self._pieces):
            self._rule.state[piece] = {
                **{name: part[number] for name, part in parts.items()},
                # Each piece counts its own steps in place; a shared count would grow once per piece.
                **{name: value.clone() for name, value in counts.items()},
            }
