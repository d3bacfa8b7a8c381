"""Build optimizers of one flat vector: optimizers of torch and layer-wise optimizers of this package."""

from collections.abc import Callable
from inspect import unwrap
from typing import Any

import torch
from torch import nn

from nnlo_lib.config.optimizer import BaseOptimizerConfig
from nnlo_lib.core.lazy_import import load_implementation
from nnlo_lib.train.optimizers.chunked import ChunkedOptimizer
from nnlo_lib.train.optimizers.parameter_layout import Layout
from nnlo_lib.train.replica.replica import Replica


def attach_optimizer(replica: Replica, rule: BaseOptimizerConfig) -> None:
    """Give `replica` the optimizer that the experiment describes."""
    replica.set_optimizer(lambda parameters: build_optimizer(rule, parameters[0], replica.layout))


def build_optimizer(
    rule: BaseOptimizerConfig, parameter: nn.Parameter, layout: Layout
) -> torch.optim.Optimizer:
    """Return the optimizer of one flat parameter.

    Args:
        rule: settings of the optimizer.
        parameter: flat parameter, (parameters,).
        layout: positions of the model's parameters in the flat one, for layer-wise rules.
    """
    kind: type[torch.optim.Optimizer] = load_implementation(rule.reference)
    options, on_cpu = rule.arguments, parameter.device.type == "cpu"
    match rule.used_kernel:
        case "fused":
            options["fused"] = True
        case "fused on cpu":
            options["fused"] = on_cpu
        case "layerwise":
            options["layout"] = layout
        case "chunked on cpu" if on_cpu:
            options["kind"], kind = uncompiled(kind), ChunkedOptimizer
    plain = _uncompiled_class(kind)
    return (decaying(plain, rule.decoupled_decay) if rule.decoupled_decay else plain)([parameter], **options)


def decaying(kind: type[torch.optim.Optimizer], decay: float) -> type[torch.optim.Optimizer]:
    """Return `kind` with decoupled weight decay: w <- (1 - lr decay) w before each step (Loshchilov and Hutter 2019)."""

    @torch.no_grad()
    def step(self: torch.optim.Optimizer, closure: None = None) -> None:
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.mul_(1 - group["lr"] * decay)
        kind.step(self, closure)

    return type(kind.__name__, (kind,), {"step": step})


def uncompiled(kind: type[torch.optim.Optimizer]) -> Callable[..., torch.optim.Optimizer]:
    """Return `kind` without torch.compile's wrappers, which cost 1 s of imports; the steps are the same."""
    return _uncompiled_class(kind)


def _uncompiled_class(kind: type[torch.optim.Optimizer]) -> type[Any]:
    # Unwrapping removes torch's decorator that disables gradients, so no_grad is applied again.
    plain = {"add_param_group": unwrap(kind.add_param_group), "step": torch.no_grad()(unwrap(kind.step))}
    return type(kind.__name__, (kind,), plain)
