"""Optimizers of Keras and TensorFlow, by the names of their arguments there."""

from typing import Any

from nnlo_lib.config.optimizer import Optimizer
from nnlo_lib.config.strict import blocks
from nnlo_lib.translate.draft import Draft

ARGUMENTS = {
    "learning_rate": "lr", "lr": "lr", "momentum": "momentum", "nesterov": "nesterov", "beta_1": "beta1",
    "beta_2": "beta2", "rho": "rho", "alpha": "rho", "epsilon": "epsilon", "eps": "epsilon",
    "weight_decay": "weight_decay", "amsgrad": "amsgrad", "centered": "centered", "initial_accumulator_value": "initial",
}  # fmt: skip
KNOWN = {rule.model_fields["name"].default for rule in blocks(Optimizer)}
OF_SERVER = {
    "sgd": {"lr": 0.01}, "adam": {"lr": 0.001}, "rmsprop": {"lr": 0.001}, "adadelta": {"lr": 0.001, "rho": 0.95},
}  # fmt: skip


def worker_rule(draft: Draft, name: str, arguments: dict[str, Any], said: str) -> None:
    """Set the optimizer of the workers; Keras's sgd has learning rate 1 in NNLO where none is given."""
    name = name.lower()
    rule: dict[str, Any] = {"name": name}
    if name == "sgd":
        rule["lr"] = 1.0
    for word, value in arguments.items():
        if word in ARGUMENTS:
            rule[ARGUMENTS[word]] = value
        else:
            draft.later(f"{said}: {word} = {value}", "optimizers have no such argument")
    if name == "sgd" and rule["lr"] == 1.0:
        said += " (without lr NNLO takes 1.0)"
    draft.set("train.optimizer", rule, said, "" if name in KNOWN else f"{name} is no optimizer here")


def server_rule(draft: Draft, name: str, said: str) -> None:
    """Set the optimizer of Downpour's server, with NNLO's constants for it."""
    known = OF_SERVER.get(name.lower())
    missing = "" if known else f"{name} is no optimizer of NNLO's master"
    draft.set("train.optimizer", {"name": name.lower(), **(known or {})}, said, missing)
