"""Update rules that torch lacks, or has with other details.

LARS and LAMB have a trust ratio for each layer, Muon orthogonal steps of matrices; Lion, and RMSprop and Adam with epsilon inside
the root, are element-wise; schedule-free ones average their own steps.
"""

from abc import ABC, abstractmethod
from fnmatch import fnmatchcase
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from nnlo_lib.train.replica.replica import Layout


class LayerwiseOptimizer(torch.optim.Optimizer):
    """Updates one flat parameter by steps that are scaled for each layer.

    Layers are the parameters that are scaled and decayed: only the parameters with two or more dimensions if
    `exclude_vectors`, else all. Element-wise work is one operation on the whole vector; norms and scaling are
    one call for all layers.
    """

    def __init__(
        self, parameters: list[nn.Parameter], layout: Layout, exclude_vectors: bool, **options: Any
    ) -> None:
        super().__init__(parameters, options)
        (self._parameter,) = parameters
        theta = self._parameter.detach()
        self._update = torch.empty_like(theta)
        layers = [slot for slot in layout if len(slot.shape) > 1 or not exclude_vectors]
        self._theta_of = [theta[slot.start : slot.stop] for slot in layers]
        self._update_of = [self._update[slot.start : slot.stop] for slot in layers]

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Update the parameter with its gradient."""
        gradient = self._parameter.grad
        if gradient is not None:
            self._move(self._parameter, gradient, self.state[self._parameter], self.param_groups[0])

    @abstractmethod
    def _move(self, theta: Tensor, gradient: Tensor, state: dict[str, Any], options: dict[str, Any]) -> None:
        """Update the parameters and the optimizer's state in place."""

    def _decay(self, weight_decay: float) -> None:
        """Add weight_decay times the layers' parameters to their updates."""
        if weight_decay and self._theta_of:
            torch._foreach_add_(self._update_of, self._theta_of, alpha=weight_decay)

    def _norms(self) -> tuple[Tensor, Tensor]:
        """Return the norms of the layers' parameters and of their updates, (layers,) each."""
        return _norms(self._theta_of), _norms(self._update_of)

    def _scale(self, ratios: Tensor, norms: tuple[Tensor, Tensor]) -> None:
        """Multiply each layer's update by its ratio, unless one of the norms is 0."""
        of_theta, of_update = norms
        # Layers that start at zero could never leave it with a ratio of 0; 0 / 0 would be NaN.
        trust = torch.where((of_theta > 0) & (of_update > 0), ratios, 1.0)
        if self._update_of:
            torch._foreach_mul_(self._update_of, list(trust.unbind()))


def _norms(vectors: list[Tensor]) -> Tensor:
    return torch.stack(list(torch._foreach_norm(vectors))) if vectors else torch.empty(0)


class LAMB(LayerwiseOptimizer):
    """Let each layer's step have the length of its parameters, in Adam's direction.

        u = m^ / (sqrt(v^) + eps) + weight_decay w;    w <- w - lr |w| / |u| u        m^, v^ as in Adam

    You et al., Large Batch Optimization for Deep Learning: Training BERT in 76 minutes, 2020, arXiv:1904.00962,
    algorithm 2 with phi(x) = x.
    """

    def _move(self, theta: Tensor, gradient: Tensor, state: dict[str, Any], options: dict[str, Any]) -> None:
        if not state:
            state |= {"step": torch.tensor(0.0), "m": torch.zeros_like(theta), "v": torch.zeros_like(theta)}
        state["step"] += 1
        beta1, beta2 = options["betas"]
        step = state["step"].item()
        m = state["m"].lerp_(gradient, 1 - beta1)
        v = state["v"].mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        # The bias corrections of v and m are applied to the root and to the quotient: no vector is allocated.
        root = torch.sqrt(v, out=self._update).div_((1 - beta2**step) ** 0.5).add_(options["eps"])
        torch.div(m, root, out=root).div_(1 - beta1**step)
        self._decay(options["weight_decay"])
        # The norm of the update includes weight decay, as in algorithm 2.
        w, u = norms = self._norms()
        self._scale(w / u, norms)
        theta.sub_(self._update, alpha=options["lr"])


class LARS(LayerwiseOptimizer):
    """Let each layer's step be a fixed part of its parameters' norm.

        ratio = trust |w| / (|g| + weight_decay |w| + eps)
        v <- momentum v + lr ratio (g + weight_decay w);    w <- w - v

    You, Gitman and Ginsburg, Large Batch Training of Convolutional Networks, 2017, arXiv:1708.03888, algorithm 1.
    """

    def _move(self, theta: Tensor, gradient: Tensor, state: dict[str, Any], options: dict[str, Any]) -> None:
        if not state:
            state["velocity"] = torch.zeros_like(theta)
        decay = options["weight_decay"]
        self._update.copy_(gradient)
        # Norms before weight decay: the denominator of the ratio adds the norms of both terms.
        w, g = norms = self._norms()
        self._decay(decay)
        self._scale(options["trust"] * w / (g + decay * w + options["eps"]), norms)
        # The learning rate is inside the velocity, as in algorithm 1: a lower rate applies to later gradients only.
        velocity = state["velocity"].mul_(options["momentum"]).add_(self._update, alpha=options["lr"])
        theta.sub_(velocity)


class Muon(LayerwiseOptimizer):
    """Move each matrix along the orthogonal matrix nearest to its momentum; AdamW moves all other parameters.

        m <- momentum m + g;    W <- W - lr (0.2 sqrt(max(rows, columns)) orthogonal(g + momentum m) + weight_decay W)

    A filter counts as a row. Jordan et al., Muon: An optimizer for hidden layers in neural networks, 2024; the factor, with
    which both kinds of steps have one size and one `lr`, is of Liu et al., 2025, arXiv:2502.16982, eq. 4.
    """

    def __init__(self, parameters: list[nn.Parameter], layout: Layout, adamw: str, **options: Any) -> None:
        super().__init__(parameters, layout, exclude_vectors=False, **options)
        others = [each for each in layout if len(each.shape) < 2 or matches(each.name, adamw)]
        matrices = (each for each in layout if each not in others)
        self._others = [slice(each.start, each.stop) for each in others]
        self._matrices = [(slice(each.start, each.stop), each.shape[0]) for each in matrices]

    def _move(self, theta: Tensor, gradient: Tensor, state: dict[str, Any], options: dict[str, Any]) -> None:
        if not state:
            others = _joined(theta, self._others)
            state |= {"momentum": torch.zeros_like(theta), "step": torch.tensor(0.0)}
            state |= {"exp_avg": torch.zeros_like(others), "exp_avg_sq": torch.zeros_like(others)}
        state["step"] += 1
        momentum, (beta1, beta2), step = options["momentum"], options["betas"], state["step"].item()
        m = state["momentum"].mul_(momentum).add_(gradient)
        update = torch.add(gradient, m, alpha=momentum, out=self._update)
        for part, rows in self._matrices:
            matrix = update[part].view(rows, -1)
            matrix.copy_(orthogonalized(matrix)).mul_(0.2 * max(matrix.shape) ** 0.5)
        g = _joined(gradient, self._others)
        mean = state["exp_avg"].lerp_(g, 1 - beta1)
        square = state["exp_avg_sq"].mul_(beta2).addcmul_(g, g, value=1 - beta2)
        step_of_others = mean / (1 - beta1**step) / ((square / (1 - beta2**step)).sqrt_() + options["eps"])
        sizes = [each.stop - each.start for each in self._others]
        for part, moved in zip(self._others, step_of_others.split(sizes), strict=True):
            update[part] = moved
        self._decay(options["weight_decay"])
        theta.sub_(update, alpha=options["lr"])


def _joined(vector: Tensor, parts: list[slice]) -> Tensor:
    return torch.cat([vector[part] for part in parts]) if parts else vector[:0]


def orthogonalized(matrix: Tensor) -> Tensor:
    """Return about U V^T of a matrix U S V^T, by five Newton-Schulz steps: singular values of 0.7 to 1.2 (Jordan et al. 2024)."""
    is_tall = matrix.shape[0] > matrix.shape[1]
    x: Tensor = matrix.T if is_tall else matrix
    x = x / (x.norm() + 1e-7)
    for _ in range(5):
        gram = x @ x.T
        x = 3.4445 * x + (-4.7750 * gram + 2.0315 * gram @ gram) @ x
    return x.T if is_tall else x


def matches(name: str, patterns: str) -> bool:
    """Return True if the name of a parameter matches one of the patterns with *, separated by |."""
    return any(fnmatchcase(name, pattern.strip()) for pattern in patterns.split("|"))


class ScheduleFree(torch.optim.Optimizer):
    """Compute gradients at y, between the steps z of SGD or AdamW and their average x; x is evaluated and published.

        z <- z - lr (u + weight_decay y);    x <- (1 - c) x + c z;    y = (1 - momentum) z + momentum x

    u = g(y), or g(y) / (sqrt(v^) + eps) if `beta2` is not 0; c = lr^2 / sum of lr^2 so far.
    Defazio et al., The Road Less Scheduled, 2024, arXiv:2405.15682, eqs. 1 to 4 and algorithm 1.
    """

    evaluated: ClassVar[str] = "x"  # vector of the state that is evaluated in place of the parameters

    def __init__(self, parameters: list[nn.Parameter], **options: Any) -> None:
        super().__init__(parameters, options)

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Update y, which is the parameter."""
        (options,) = self.param_groups
        (y,) = options["params"]
        state, lr, u = self.state[y], options["lr"], y.grad
        if not state:
            state |= {"z": y.clone(), "x": y.clone(), "weights": torch.tensor(0.0, dtype=torch.float64)}
        if beta2 := options["beta2"]:
            if "v" not in state:
                state |= {"v": torch.zeros_like(y), "step": torch.tensor(0.0)}
            state["step"] += 1
            v = state["v"].mul_(beta2).addcmul_(u, u, value=1 - beta2)
            u = u / ((v / (1 - beta2 ** state["step"].item())).sqrt_() + options["eps"])
        state["weights"] += lr**2
        z = state["z"].sub_(u.add(y, alpha=options["weight_decay"]), alpha=lr)
        # A warm-up may begin with a rate of 0.
        x = state["x"].lerp_(z, lr**2 / (state["weights"].item() or 1.0))
        torch.lerp(z, x, options["momentum"], out=y.data)


class ElementwiseOptimizer(torch.optim.Optimizer, ABC):
    """Element-wise optimizer: w <- w - lr step(g), with decay w added to g. A subclass has the step and its state."""

    def __init__(self, parameters: list[nn.Parameter], **options: Any) -> None:
        super().__init__(parameters, options)

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Update all parameters that have a gradient."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    decayed = parameter.grad.add(parameter, alpha=group["weight_decay"])
                    parameter.sub_(self._step(decayed, self.state[parameter], group), alpha=group["lr"])

    @abstractmethod
    def _step(self, gradient: Tensor, state: dict[str, Tensor], options: dict[str, Any]) -> Tensor:
        """Return the step, update `state`."""


class Lion(ElementwiseOptimizer):
    """w <- w - lr sign(beta1 m + (1 - beta1) g);    m <- beta2 m + (1 - beta2) g    (Chen et al. 2023, arXiv:2302.06675)."""

    def _step(self, gradient: Tensor, state: dict[str, Tensor], options: dict[str, Any]) -> Tensor:
        if not state:
            state["exp_avg"] = torch.zeros_like(gradient)
        beta1, beta2 = options["betas"]
        sign: Tensor = state["exp_avg"].lerp(gradient, 1 - beta1).sign_()
        state["exp_avg"].lerp_(gradient, 1 - beta2)
        return sign


class RMSpropInsideRoot(ElementwiseOptimizer):
    """c <- alpha c + (1 - alpha) g^2;    w <- w - lr g / sqrt(c + eps)."""

    def _step(self, gradient: Tensor, state: dict[str, Tensor], options: dict[str, Any]) -> Tensor:
        if not state:
            state["square_avg"] = torch.zeros_like(gradient)
        alpha = options["alpha"]
        c = state["square_avg"].mul_(alpha).addcmul_(gradient, gradient, value=1 - alpha)
        root: Tensor = (c + options["eps"]).sqrt_()
        return gradient / root


class AdamInsideRoot(ElementwiseOptimizer):
    """m^ and v^ as in Adam;    w <- w - lr m^ / sqrt(v^ + eps)."""

    def _step(self, gradient: Tensor, state: dict[str, Tensor], options: dict[str, Any]) -> Tensor:
        if not state:
            state |= {name: torch.zeros_like(gradient) for name in ("exp_avg", "exp_avg_sq")}
            state["step"] = torch.tensor(0.0)
        state["step"] += 1
        beta1, beta2 = options["betas"]
        steps = state["step"].item()
        m = state["exp_avg"].lerp_(gradient, 1 - beta1)
        v = state["exp_avg_sq"].mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        root = (v / (1 - beta2**steps) + options["eps"]).sqrt_()
        moved: Tensor = m / (1 - beta1**steps) / root
        return moved
