"""Update rules: torch's own, applied to one flat vector."""

from typing import Any

import torch

from nnlo_lib import config
from nnlo_lib.train.replica import Replica


def equip(replica: Replica, rule: config.Optimizer) -> None:
    """Give `replica` the optimizer that the experiment describes."""
    kind, options = _describe(rule)
    replica.use(kind, lr=rule.lr, weight_decay=rule.weight_decay, **options)


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
