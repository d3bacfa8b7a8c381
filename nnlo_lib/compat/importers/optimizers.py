"""Optimizers of Keras and TensorFlow: names of arguments, and translation."""

from typing import Any

from nnlo_lib.compat.importers.draft import ExperimentDraft
from nnlo_lib.config.base import block_types
from nnlo_lib.config.optimizer import OptimizerConfig

ARGUMENT_NAMES = {
    "learning_rate": "lr", "lr": "lr", "momentum": "momentum", "nesterov": "nesterov", "beta_1": "beta1",
    "beta_2": "beta2", "rho": "rho", "alpha": "rho", "epsilon": "epsilon", "eps": "epsilon",
    "weight_decay": "weight_decay", "amsgrad": "amsgrad", "centered": "centered", "initial_accumulator_value": "initial",
}  # fmt: skip
OPTIMIZER_NAMES = {rule.model_fields["name"].default for rule in block_types(OptimizerConfig)}
# Defaults of the Keras backend's master optimizers (nnlo/train/optimizer.py); other backends have other ones.
SERVER_OPTIMIZER_DEFAULTS = {
    "sgd": {"lr": 0.01}, "adam": {"lr": 0.001}, "rmsprop": {"lr": 0.001}, "adadelta": {"lr": 0.001, "rho": 0.95},
}  # fmt: skip


def set_worker_optimizer(draft: ExperimentDraft, name: str, arguments: dict[str, Any], source: str) -> None:
    """Set the optimizer of the workers; without a learning rate, the original NNLO's sgd uses 1.

    Args:
        draft: receives the setting.
        name: name of the optimizer in Keras.
        arguments: arguments of the optimizer in Keras.
        source: options from which the setting follows.
    """
    name = name.lower()
    rule: dict[str, Any] = {"name": name}
    if name == "sgd":
        rule["lr"] = 1.0
    for word, value in arguments.items():
        if word in ARGUMENT_NAMES:
            rule[ARGUMENT_NAMES[word]] = value
        else:
            draft.add_untranslatable(
                f"{source}: {word} = {value}", f"optimizers of nnlo have no argument {word}"
            )
    if name == "sgd" and rule["lr"] == 1.0:
        source += " (without lr, the original NNLO uses 1.0)"
    draft.set(
        "train.optimizer", rule, source, "" if name in OPTIMIZER_NAMES else f"nnlo has no optimizer {name}"
    )


def set_server_optimizer(draft: ExperimentDraft, name: str, source: str) -> None:
    """Set the optimizer of Downpour's server with the constants of the original NNLO.

    Args:
        draft: receives the setting.
        name: name of the optimizer.
        source: options from which the setting follows.
    """
    known = SERVER_OPTIMIZER_DEFAULTS.get(name.lower())
    missing = "" if known else f"{name} is not an optimizer of the original NNLO's master"
    draft.set("train.optimizer", {"name": name.lower(), **(known or {})}, source, missing)
