"""PyDTNN's optimizers and the scaling of their learning rates by its launchers."""

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
    """Set the optimizer with the learning rate that PyDTNN applied. Raises UserError if PyDTNN lacks it."""
    name = options["optimizer"].lower()
    if name not in RULES:
        raise UserError(f"PyDTNN has no optimizer '{name}'; {suggest_name(name, RULES)}")
    rule = {"name": name, "lr": options["learning_rate"]} | {key: options[key] for key in RULES[name]}
    words = [key for key in ("optimizer", "learning_rate", *RULES[name]) if key in options]
    said = options.as_written(*(words or ["optimizer"]))
    if is_2020_launcher(options):
        said = _divide_2020_rate(draft, options, rule, ranks, said)
    elif name == "sgd" and ranks > 1 and options["learning_rate_scaling"]:
        rule["lr"] = round(rule["lr"] * ranks, 12)
        said += f", times {ranks} ranks ({options.as_written('learning_rate_scaling')})"
    _decay(draft, options, rule)
    draft.set("train.optimizer", rule, said)
    if name in ("adam", "nadam", "rmsprop"):
        draft.remarks.append(
            "PyDTNN adds --epsilon below the root of the second moment; here it is added to the root."
        )


def is_2020_launcher(options: ParsedOptions) -> bool:
    """Return True for the launcher of 2020, which took a list of losses and divided the learning rate."""
    return (
        "," in options["loss_func"]
        or options["loss_func"] == "categorical_accuracy"
        or "warm_up_batches" in options
    )


def _divide_2020_rate(
    draft: ExperimentDraft, options: ParsedOptions, rule: dict[str, Any], ranks: int, said: str
) -> str:
    """Divide the rate by the global batch size, unless the optimizer is SGD; return its source as text.

    The launcher of 2020 summed gradients and divided the rate. For SGD, sum and division cancel; the steps of
    adaptive optimizers do not depend on the scale of the gradient, so that the division lowers their rate.
    """
    samples = options["batch_size"] * ranks
    if options["optimizer"] not in RULES:
        draft.remarks.append(
            f"{options.as_written('optimizer')}: the launcher of this command knew small letters only and took SGD without a "
            "word; here it is what it says."
        )
    if rule["name"] == "sgd":
        return said
    rule["lr"] = rule["lr"] / samples
    draft.remarks.append(
        f"{options.as_written('learning_rate')}: the launcher of this command added gradients up and divided the rate by "
        f"batch size times ranks, {samples} (its effective_learning_rate); {rule['name']} does not feel the sum, so "
        "this is its rate."
    )
    return f"{said}, / {samples}"


def _decay(draft: ExperimentDraft, options: ParsedOptions, rule: dict[str, Any]) -> None:
    if not options["decay"]:
        return
    rule["weight_decay"] = options["decay"]
    if rule["name"] == "adam":
        rule["name"] = "adamw"
    elif rule["name"] == "nadam":
        rule["decoupled"] = True
    else:
        draft.remarks.append(
            f"{options.as_written('decay')}: PyDTNN's decay is decoupled from the gradient, as in AdamW; weight_decay is an "
            "L2 penalty in the gradient."
        )
