"""LARS: momentum SGD with a trust ratio for each layer."""

from typing import Any

import torch
from torch import Tensor, nn

from nnlo_lib.train.optimizers.layerwise import LayerwiseOptimizer
from nnlo_lib.train.optimizers.parameter_layout import Layout


class LARS(LayerwiseOptimizer):
    """Let each layer's step be a fixed part of its parameters' norm.

        ratio = trust |w| / (|g| + weight_decay |w| + eps)
        v <- momentum v + lr ratio (g + weight_decay w);    w <- w - v

    You, Gitman and Ginsburg, Large Batch Training of Convolutional Networks, 2017, arXiv:1708.03888, algorithm 1.

    Args:
        parameters: the flat parameter, as a list.
        layout: positions of the layers in it.
        lr: learning rate.
        momentum: decay of the velocity.
        trust: trust coefficient.
        eps: added to the denominator of the trust ratio.
        weight_decay: L2 penalty.
        exclude_vectors: whether 1-d parameters have neither trust ratio nor weight decay.
    """

    def __init__(
        self,
        parameters: list[nn.Parameter],
        layout: Layout,
        *,
        lr: float,
        momentum: float = 0.9,
        trust: float = 0.001,
        eps: float = 1e-9,
        weight_decay: float = 0.0,
        exclude_vectors: bool = True,
    ) -> None:
        options = {"lr": lr, "momentum": momentum, "trust": trust, "eps": eps, "weight_decay": weight_decay}
        super().__init__(parameters, layout, exclude_vectors, **options)

    def _move(self, theta: Tensor, gradient: Tensor, state: dict[str, Any], options: dict[str, Any]) -> None:
        if not state:
            state["velocity"] = torch.zeros_like(theta)
        decay = options["weight_decay"]
        self._update.copy_(gradient)
        # Norms before weight decay: the denominator of the ratio adds the norms of both terms.
        w, g = norms = self._norms()
        self._decay(decay)
        self._scale(options["trust"] * w / (g + decay * w + options["eps"]), norms)
        # The learning rate is inside the velocity, as in algorithm 1: a lower rate applies to later
        # gradients only.
        velocity = state["velocity"].mul_(options["momentum"]).add_(self._update, alpha=options["lr"])
        theta.sub_(velocity)
