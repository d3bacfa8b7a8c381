"""Update rules: torch's own, applied to one flat vector."""

from inspect import unwrap
from typing import Any

import torch

from nnlo_lib import config
from nnlo_lib.train.replica import Replica


def equip(replica: Replica, rule: config.Optimizer) -> None:
    """Give `replica` the optimizer that the experiment describes."""
    kind, options = _describe(rule)
    replica.use(_uncompiled(kind), lr=rule.lr, weight_decay=rule.weight_decay, **options)


def _uncompiled(kind: type[torch.optim.Optimizer]) -> type[torch.optim.Optimizer]:
    """Take off the wrappers for torch.compile, whose import costs each rank a second; the steps are the same."""
    plain = {"add_param_group": unwrap(kind.add_param_group), "step": torch.no_grad()(unwrap(kind.step))}
    return type(kind.__name__, (kind,), plain)


def _describe(rule: config.Optimizer) -> tuple[type[torch.optim.Optimizer], dict[str, Any]]:
    match rule:
        case config.SGD():
            return torch.optim.SGD, {"momentum": rule.momentum, "nesterov": rule.nesterov, "fused": True}
        case config.Adam():
            return torch.optim.Adam, {"betas": (rule.beta1, rule.beta2), "eps": rule.epsilon, "fused": True}
        case config.RMSprop():
            return torch.optim.RMSprop, {"alpha": rule.rho, "momentum": rule.momentum, "eps": rule.epsilon}
        case config.Adadelta():
            return torch.optim.Adadelta, {"rho": rule.rho, "eps": rule.epsilon}
