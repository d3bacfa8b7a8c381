"""LAMB: Adam with a trust ratio for each layer."""

from typing import Any

import torch
from torch import Tensor, nn

from nnlo_lib.train.optimizers.layerwise import LayerwiseOptimizer
from nnlo_lib.train.optimizers.parameter_layout import Layout


class LAMB(LayerwiseOptimizer):
    """Let each layer's step have the length of its parameters, in Adam's direction.

        u = m^ / (sqrt(v^) + eps) + weight_decay w;    w <- w - lr |w| / |u| u        m^, v^ as in Adam

    You et al., Large Batch Optimization for Deep Learning: Training BERT in 76 minutes, 2020, arXiv:1904.00962,
    algorithm 2 with phi(x) = x.

    Args:
        parameters: the flat parameter, as a list.
        layout: positions of the layers in it.
        lr: learning rate.
        betas: decays of the first and the second moment.
        eps: added to the root of the second moment.
        weight_decay: decoupled weight decay.
        exclude_vectors: whether 1-d parameters have neither trust ratio nor weight decay.
    """

    def __init__(
        self,
        parameters: list[nn.Parameter],
        layout: Layout,
        *,
        lr: float,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.0,
        exclude_vectors: bool = True,
    ) -> None:
        options = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        super().__init__(parameters, layout, exclude_vectors, **options)

    def _move(self, theta: Tensor, gradient: Tensor, state: dict[str, Any], options: dict[str, Any]) -> None:
        if not state:
            state |= {"step": torch.tensor(0.0), "m": torch.zeros_like(theta), "v": torch.zeros_like(theta)}
        state["step"] += 1
        self._adam(gradient, state, options)
        self._decay(options["weight_decay"])
        # The norm of the update includes weight decay, as in algorithm 2.
        w, u = norms = self._norms()
        self._scale(w / u, norms)
        theta.sub_(self._update, alpha=options["lr"])

    def _adam(self, gradient: Tensor, state: dict[str, Any], options: dict[str, Any]) -> None:
        """Set the update to Adam's direction, m^ / (sqrt(v^) + eps).

        Args:
            gradient: gradient, (parameters,).
            state: moments `m` and `v`, updated in place, and the number of steps.
            options: `betas` and `eps`.
        """
        beta1, beta2 = options["betas"]
        step = state["step"].item()
        m = state["m"].lerp_(gradient, 1 - beta1)
        v = state["v"].mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        # The bias corrections of v and m are applied to the root and to the quotient: no vector is
        # allocated.
        root = torch.sqrt(v, out=self._update).div_((1 - beta2**step) ** 0.5).add_(options["eps"])
        torch.div(m, root, out=root).div_(1 - beta1**step)
