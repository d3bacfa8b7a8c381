"""Build optimizers of one flat vector: optimizers of torch and layer-wise optimizers of this package."""

from collections.abc import Callable
from inspect import unwrap

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
    kind: type[torch.optim.Optimizer] = load_implementation(rule.implementation)
    options, on_cpu = rule.arguments, parameter.device.type == "cpu"
    match rule.kernel:
        case "fused":
            options["fused"] = True
        case "fused on cpu":
            options["fused"] = on_cpu
        case "layerwise":
            options["layout"] = layout
        case "chunked on cpu" if on_cpu:
            return uncompiled(ChunkedOptimizer)([parameter], kind=uncompiled(kind), **options)
    return uncompiled(kind)([parameter], **options)


def uncompiled(kind: type[torch.optim.Optimizer]) -> Callable[..., torch.optim.Optimizer]:
    """Return `kind` without torch.compile's wrappers, which cost 1 s of imports; the steps are the same."""
    # Unwrapping removes torch's decorator that disables gradients, so no_grad is applied again.
    plain = {"add_param_group": unwrap(kind.add_param_group), "step": torch.no_grad()(unwrap(kind.step))}
    return type(kind.__name__, (kind,), plain)
