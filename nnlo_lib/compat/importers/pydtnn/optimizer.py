"""PyDTNN's optimizers, and the scaling of learning rates by its launchers."""

from typing import Any

from nnlo_lib.compat.importers.draft import ExperimentDraft
from nnlo_lib.compat.importers.options import ParsedOptions
from nnlo_lib.config import suggest_name
from nnlo_lib.core.errors import UserError

RULES = {
    "sgd": ("momentum", "nesterov"), "rmsprop": ("rho", "epsilon"), "adam": ("beta1", "beta2", "epsilon"),
    "nadam": ("beta1", "beta2", "epsilon"),
}  # fmt: skip


def set_optimizer(draft: ExperimentDraft, options: ParsedOptions, ranks: int) -> None:
    """Set the optimizer with the learning rate that PyDTNN applies.

    Args:
        draft: receives the settings.
        options: options of the command.
        ranks: number of data-parallel processes.

    Raises:
        UserError: if PyDTNN has no such optimizer.
    """
    name = options["optimizer"].lower()
    if name not in RULES:
        raise UserError(f"--optimizer: PyDTNN has no optimizer '{name}'; {suggest_name(name, RULES)}")
    rule = {"name": name, "lr": options["learning_rate"]} | {key: options[key] for key in RULES[name]}
    words = [key for key in ("optimizer", "learning_rate", *RULES[name]) if key in options]
    source = options.as_written(*(words or ["optimizer"]))
    if is_2020_launcher(options):
        source = _divide_2020_rate(draft, options, rule, ranks, source)
    elif name == "sgd" and ranks > 1 and options["learning_rate_scaling"]:
        rule["lr"] = round(rule["lr"] * ranks, 12)
        source += f", times {ranks} ranks ({options.as_written('learning_rate_scaling')})"
    if name in ("adam", "rmsprop"):
        rule["epsilon_inside_root"] = True
    _decay(draft, options, rule)
    draft.set("train.optimizer", rule, source)
    if name == "nadam":
        draft.remarks.append(
            "PyDTNN's nadam adds --epsilon inside the root and does not decay the first moment in its look-ahead; nnlo's is "
            "torch's."
        )


def is_2020_launcher(options: ParsedOptions) -> bool:
    """Return True for the launcher of 2020, which takes a list of losses and divides the learning rate."""
    return (
        "," in options["loss_func"]
        or options["loss_func"] == "categorical_accuracy"
        or "warm_up_batches" in options
    )


def _divide_2020_rate(
    draft: ExperimentDraft, options: ParsedOptions, rule: dict[str, Any], ranks: int, source: str
) -> str:
    """Divide the learning rate by the global batch size, unless the optimizer is SGD.

    The launcher of 2020 sums gradients and divides the learning rate. For SGD, sum and division cancel. The
    steps of adaptive optimizers do not depend on the scale of the gradient, so the division reduces their rate.

    Args:
        draft: receives the remarks.
        options: options of the command.
        rule: settings of the optimizer; its `lr` is divided in place.
        ranks: number of data-parallel processes.
        source: options from which the setting follows.

    Returns:
        `source` with the divisor.
    """
    samples = options["batch_size"] * ranks
    # The name was found in lowercase, so only its case is wrong.
    if options["optimizer"] not in RULES:
        draft.remarks.append(
            f"{options.as_written('optimizer')}: PyDTNN's launcher of 2020 accepts only lowercase names and silently uses "
            f"SGD for other names; nnlo uses {rule['name']}."
        )
    if rule["name"] == "sgd":
        return source
    rule["lr"] = rule["lr"] / samples
    draft.remarks.append(
        f"{options.as_written('learning_rate')}: PyDTNN's launcher of 2020 sums gradients and divides the learning rate by "
        f"batch size times ranks, {samples} (its effective_learning_rate); the steps of {rule['name']} do not depend on "
        "the scale of gradients, so nnlo uses the divided rate."
    )
    return f"{source}, / {samples}"


def _decay(draft: ExperimentDraft, options: ParsedOptions, rule: dict[str, Any]) -> None:
    if not options["decay"]:
        return
    rule["weight_decay"] = options["decay"]
    # PyDTNN's decay is decoupled from the gradient for all optimizers: w -= lr * (decay * w + step).
    if rule["name"] == "adam":
        rule["name"] = "adamw"
    else:
        rule["decoupled"] = True
