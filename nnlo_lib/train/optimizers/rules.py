"""Update rules, applied to one flat vector: torch's own, and the layer-wise ones of this folder."""

from collections.abc import Callable
from inspect import unwrap
from typing import Any

import torch
from torch import nn, optim

from nnlo_lib import config
from nnlo_lib.train.optimizers.lamb import LAMB
from nnlo_lib.train.optimizers.lars import LARS
from nnlo_lib.train.optimizers.layout import Layout
from nnlo_lib.train.optimizers.pieces import Pieces
from nnlo_lib.train.replica.replica import Replica

WithMoments = config.Adam | config.AdamW | config.NAdam | config.Adamax | config.LAMB


def equip(replica: Replica, rule: config.Optimizer) -> None:
    """Give `replica` the optimizer that the experiment describes."""
    replica.use(lambda parameters: make(rule, parameters[0], replica.layout))


def make(rule: config.Optimizer, parameter: nn.Parameter, layout: Layout) -> torch.optim.Optimizer:
    """Return the optimizer of one flat parameter whose pieces `layout` tells, from its first value on."""
    kind, options = _describe(rule, layout)
    options |= {"lr": rule.lr, "weight_decay": rule.weight_decay}
    on_cpu = parameter.device.type == "cpu"
    if isinstance(rule, config.Adagrad):
        options["fused"] = on_cpu  # there it is, on GPUs it is not
    if isinstance(rule, config.NAdam | config.Adamax | config.RMSprop | config.Adadelta) and on_cpu:
        return uncompiled(Pieces)([parameter], kind=uncompiled(kind), **options)
    return uncompiled(kind)([parameter], **options)


def uncompiled(kind: type[torch.optim.Optimizer]) -> Callable[..., torch.optim.Optimizer]:
    """Take off the wrappers for torch.compile, whose import costs each rank a second; the steps are the same."""
    plain = {"add_param_group": unwrap(kind.add_param_group), "step": torch.no_grad()(unwrap(kind.step))}
    return type(kind.__name__, (kind,), plain)


def _describe(rule: config.Optimizer, layout: Layout) -> tuple[type[torch.optim.Optimizer], dict[str, Any]]:
    match rule:
        case config.SGD():
            return optim.SGD, {"momentum": rule.momentum, "nesterov": rule.nesterov, "fused": True}
        case config.Adam():
            return optim.Adam, _moments(rule) | {"amsgrad": rule.amsgrad, "fused": True}
        case config.AdamW():
            return optim.AdamW, _moments(rule) | {"amsgrad": rule.amsgrad, "fused": True}
        case config.NAdam():
            options = {"momentum_decay": rule.momentum_decay, "decoupled_weight_decay": rule.decoupled}
            return optim.NAdam, _moments(rule) | options
        case config.Adamax():
            return optim.Adamax, _moments(rule)
        case config.RMSprop():
            options = {"alpha": rule.rho, "momentum": rule.momentum, "centered": rule.centered}
            return optim.RMSprop, options | {"eps": rule.epsilon}
        case config.Adadelta():
            return optim.Adadelta, {"rho": rule.rho, "eps": rule.epsilon}
        case config.Adagrad():
            options = {"lr_decay": rule.lr_decay, "initial_accumulator_value": rule.initial}
            return optim.Adagrad, options | {"eps": rule.epsilon}
        case config.LARS():
            own = {"momentum": rule.momentum, "trust": rule.trust, "eps": rule.epsilon}
            return LARS, own | {"layout": layout, "exclude_vectors": rule.exclude_vectors}
        case config.LAMB():
            return LAMB, _moments(rule) | {"layout": layout, "exclude_vectors": rule.exclude_vectors}


def _moments(rule: WithMoments) -> dict[str, Any]:
    return {"betas": (rule.beta1, rule.beta2), "eps": rule.epsilon}
