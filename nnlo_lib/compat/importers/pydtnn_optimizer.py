"""PyDTNN's optimizers and schedulers: learning rates and their scaling by the number of ranks, early stopping, saving."""

import re
from typing import Any

from nnlo_lib.compat.importers.draft import ExperimentDraft
from nnlo_lib.compat.importers.options import ParsedOptions
from nnlo_lib.config import suggest_name
from nnlo_lib.core.errors import UserError

RULES = {
    "sgd": ("momentum", "nesterov"), "rmsprop": ("rho", "epsilon"), "adam": ("beta1", "beta2", "epsilon"),
    "nadam": ("beta1", "beta2", "epsilon"),
}  # fmt: skip
LOSS = "val_categorical_cross_entropy"
# Schedulers with the defaults of their options, such as --early_stopping_metric.
SCHEDULERS: dict[str, dict[str, Any]] = {
    "warm_up": {"batches": 500, "epochs": 5},
    "early_stopping": {"metric": LOSS, "patience": 10},
    "reduce_lr_on_plateau": {"metric": LOSS, "factor": 0.1, "patience": 5, "min_lr": 0.0},
    "reduce_lr_every_nepochs": {"factor": 0.1, "nepochs": 5, "min_lr": 0.0},
    "stop_at_loss": {"metric": "val_accuracy", "threshold": 0.0},
    "model_checkpoint": {"metric": LOSS, "save_freq": 2},
}


def set_optimizer(draft: ExperimentDraft, options: ParsedOptions, ranks: int) -> None:
    """Set the optimizer with the learning rate that PyDTNN applies on a number of data-parallel ranks."""
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
    if options["decay"]:
        # PyDTNN's decay is decoupled from the gradient for all optimizers: w -= lr * (decay * w + step).
        rule |= {"weight_decay": options["decay"]} | (
            {"name": "adamw"} if name == "adam" else {"decoupled": True}
        )
    draft.set("train.optimizer", rule, source)
    if name == "nadam":
        draft.note(
            "PyDTNN's nadam adds --epsilon inside the root and does not decay the first moment in its look-ahead; nnlo's is "
            "torch's."
        )


def is_2020_launcher(options: ParsedOptions) -> bool:
    """Return True for the launcher of 2020, which takes a list of losses and divides the learning rate."""
    losses = options["loss_func"]
    return "," in losses or losses == "categorical_accuracy" or "warm_up_batches" in options


def _divide_2020_rate(
    draft: ExperimentDraft, options: ParsedOptions, rule: dict[str, Any], ranks: int, source: str
) -> str:
    """Divide `lr` of the optimizer by the global batch size, unless it is SGD; return `source` with the divisor.

    The launcher of 2020 sums gradients and divides the learning rate. For SGD, sum and division cancel. The
    steps of adaptive optimizers do not depend on the scale of the gradient, so the division reduces their rate.
    """
    samples = options["batch_size"] * ranks
    # The name was found in lowercase, so only its case is wrong.
    if options["optimizer"] not in RULES:
        draft.note(
            f"{options.as_written('optimizer')}: PyDTNN's launcher of 2020 accepts only lowercase names and silently uses "
            f"SGD for other names; nnlo uses {rule['name']}."
        )
    if rule["name"] == "sgd":
        return source
    rule["lr"] = rule["lr"] / samples
    draft.note(
        f"{options.as_written('learning_rate')}: PyDTNN's launcher of 2020 sums gradients and divides the learning rate by "
        f"batch size times ranks, {samples} (its effective_learning_rate); the steps of {rule['name']} do not depend on "
        "the scale of gradients, so nnlo uses the divided rate."
    )
    return f"{source}, / {samples}"


def metric_name(name: str) -> str:
    """Return the name in experiment files of a loss or metric of PyDTNN."""
    return re.sub("(categorical|binary)_cross_entropy", "loss", name).replace("categorical_", "")


def lacks_validation(options: ParsedOptions) -> bool:
    """Return True if the command sets no validation samples aside."""
    return not (options["test_as_validation"] or options["validation_split"])


def set_schedulers(draft: ExperimentDraft, options: ParsedOptions, ranks: int) -> None:
    """Translate the schedulers in --lr_schedulers; name the options of other schedulers."""
    chosen = [name for name in options["lr_schedulers"].split(",") if name]
    for name in chosen:
        if name not in SCHEDULERS:
            raise UserError(
                f"--lr_schedulers: PyDTNN has no scheduler '{name}'; {suggest_name(name, SCHEDULERS)}"
            )
        _set_scheduler(draft, options, name, ranks)
    for name in (each for each in SCHEDULERS if each not in chosen):
        unless = f"PyDTNN ignores it unless {name} is in --lr_schedulers"
        draft.note(*(f"{each} ({unless})" for each in _given(options, name)))


def _given(options: ParsedOptions, scheduler: str) -> list[str]:
    """Return the options of a scheduler that the command has, as they were written."""
    names = [f"{scheduler}_{key}" for key in SCHEDULERS[scheduler]]
    return [options.as_written(name) for name in names if name in options]


def _set_scheduler(draft: ExperimentDraft, options: ParsedOptions, name: str, ranks: int) -> None:
    value = {key: options[f"{name}_{key}"] for key in SCHEDULERS[name]}
    metric = metric_name(value.get("metric", ""))
    # PyDTNN's names without val_ are metrics of the training samples.
    column = metric if metric.startswith("val_") else f"train_{metric}"
    source = ", ".join([f"lr_schedulers {name}", *_given(options, name)])
    if metric.startswith("val_") and lacks_validation(options):
        reason = "there are no validation samples without --validation_split or --test_as_validation"
        draft.lose(source, reason)
        return
    match name:
        case "early_stopping":
            draft.set("train.early_stopping", {"metric": column, "patience": value["patience"]}, source)
            draft.set("train.restore_best", column, "early_stopping reloads the best weights")
        case "reduce_lr_on_plateau":
            _set_schedule(draft, {"name": "plateau", **value, "metric": column}, source)
        case "reduce_lr_every_nepochs":
            keys = {"every": value["nepochs"], "factor": value["factor"], "min_lr": value["min_lr"]}
            _set_schedule(draft, {"name": "step", **keys}, source)
            if value["min_lr"]:
                draft.note(
                    f"{options.as_written(f'{name}_min_lr')}: PyDTNN omits a change below the minimum; nnlo sets the minimum"
                )
        case "stop_at_loss":
            threshold = value["threshold"]
            if metric.endswith("accuracy"):
                # PyDTNN measures accuracies in per cent. Rounding keeps floating-point errors out of the experiment.
                threshold, source = round(threshold / 100, 12), f"{source}, in per cent"
            draft.set("train.target", {"metric": column, "value": threshold}, source)
        case "warm_up":
            if "warm_up_batches" in options:  # an option of the launcher of 2020 only
                warm_up = {"steps": value["batches"], "start": 0.0}
            else:  # from the rate of one rank
                warm_up = {"epochs": value["epochs"], "start": round(1 / ranks, 6)}
            draft.set("train.warm_up", warm_up, source)
        case "model_checkpoint":
            draft.set("checkpoint.best", metric.removeprefix("val_"), source)
            draft.note(
                f"model_checkpoint: PyDTNN saves a better model at most every {value['save_freq']} epochs; nnlo keeps the best "
                "model of all epochs"
            )


def _set_schedule(draft: ExperimentDraft, schedule: dict[str, Any], source: str) -> None:
    if any(setting.key == "train.schedule" for setting in draft.settings):
        draft.lose(source, "a run has one schedule, and --lr_schedulers lists another one first")
    else:
        draft.set("train.schedule", schedule, source)
