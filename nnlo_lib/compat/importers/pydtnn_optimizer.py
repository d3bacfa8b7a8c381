"""PyDTNN's optimizers and schedulers: learning rates and their scaling by the number of ranks, early stopping, saving."""

from typing import Any

from nnlo_lib.compat.importers.draft import ExperimentDraft
from nnlo_lib.compat.importers.options import OptionSpec, ParsedOptions
from nnlo_lib.config import suggest_name
from nnlo_lib.core.errors import UserError

RULES = {
    "sgd": ("momentum", "nesterov"), "rmsprop": ("rho", "epsilon"), "adam": ("beta1", "beta2", "epsilon"),
    "nadam": ("beta1", "beta2", "epsilon"),
}  # fmt: skip
LOSS = "val_categorical_cross_entropy"
OPTIONS = {
    "lr_schedulers": OptionSpec(default="early_stopping,reduce_lr_on_plateau,model_checkpoint"),
    "warm_up_batches": OptionSpec(int, 500),
    "warm_up_epochs": OptionSpec(int, 5),
    "early_stopping_metric": OptionSpec(default=LOSS),
    "early_stopping_patience": OptionSpec(int, 10),
    "reduce_lr_on_plateau_metric": OptionSpec(default=LOSS),
    "reduce_lr_on_plateau_factor": OptionSpec(float, 0.1),
    "reduce_lr_on_plateau_patience": OptionSpec(int, 5),
    "reduce_lr_on_plateau_min_lr": OptionSpec(float, 0.0),
    "reduce_lr_every_nepochs_factor": OptionSpec(float, 0.1),
    "reduce_lr_every_nepochs_nepochs": OptionSpec(int, 5),
    "reduce_lr_every_nepochs_min_lr": OptionSpec(float, 0.0),
    "stop_at_loss_metric": OptionSpec(default="val_accuracy"),
    "stop_at_loss_threshold": OptionSpec(float, 0.0),
    "model_checkpoint_metric": OptionSpec(default=LOSS),
    "model_checkpoint_save_freq": OptionSpec(int, 2),
}  # fmt: skip
SCHEDULER_NAMES = (
    "warm_up", "early_stopping", "reduce_lr_on_plateau", "reduce_lr_every_nepochs", "stop_at_loss", "model_checkpoint",
)  # fmt: skip


def set_optimizer(draft: ExperimentDraft, options: ParsedOptions, ranks: int) -> None:
    """Set the optimizer with the learning rate that PyDTNN applies.

    Args:
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
        rule: settings of the optimizer; its `lr` is divided in place.
        ranks: number of data-parallel processes.

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


def metric_name(name: str) -> str:
    """Return the name in experiment files of a loss or metric of PyDTNN."""
    for old, new in (
        ("categorical_cross_entropy", "loss"),
        ("binary_cross_entropy", "loss"),
        ("categorical_", ""),
    ):
        name = name.replace(old, new)
    return name


def lacks_validation(options: ParsedOptions) -> bool:
    """Return True if the command sets no validation samples aside."""
    return not (options["test_as_validation"] or options["validation_split"])


def set_schedulers(draft: ExperimentDraft, options: ParsedOptions, ranks: int) -> None:
    """Translate the schedulers in --lr_schedulers; record options of other schedulers as ineffective.

    Args:
        ranks: number of data-parallel processes.

    Raises:
        UserError: if PyDTNN has no such scheduler.
    """
    chosen = [name for name in options["lr_schedulers"].split(",") if name]
    for name in chosen:
        if name not in SCHEDULER_NAMES:
            raise UserError(
                f"--lr_schedulers: PyDTNN has no scheduler '{name}'; {suggest_name(name, SCHEDULER_NAMES)}"
            )
        _set(draft, options, name, ranks)
    for option, _ in options.given_options():
        owner = next((name for name in SCHEDULER_NAMES if option.startswith(f"{name}_")), None)
        if owner and owner not in chosen:
            draft.ineffective.append(
                f"{options.as_written(option)} (PyDTNN ignores it unless {owner} is in --lr_schedulers)"
            )


def _set(draft: ExperimentDraft, options: ParsedOptions, name: str, ranks: int) -> None:
    metric = metric_name(options[f"{name}_metric"]) if f"{name}_metric" in OPTIONS else ""
    source = options.as_written(
        *(option for option in OPTIONS if option.startswith(f"{name}_") and option in options)
    )
    source = f"lr_schedulers {name}{f', {source}' if source else ''}"
    if metric.startswith("val_") and lacks_validation(options):
        draft.add_untranslatable(
            source, "there are no validation samples without --validation_split or --test_as_validation"
        )
        return
    match name:
        case "early_stopping":
            watched = _column(metric)
            block = {"metric": watched, "patience": options["early_stopping_patience"]}
            draft.set("train.early_stopping", block, source)
            draft.set("train.restore_best", watched, "early_stopping reloads the best weights")
        case "reduce_lr_on_plateau":
            block = {key: options[f"{name}_{key}"] for key in ("factor", "patience", "min_lr")}
            _schedule(draft, {"name": "plateau", "metric": _column(metric), **block}, source)
        case "reduce_lr_every_nepochs":
            block = {key: options[f"{name}_{key}"] for key in ("factor", "min_lr")}
            _schedule(draft, {"name": "step", "every": options[f"{name}_nepochs"], **block}, source)
            if options[f"{name}_min_lr"]:
                draft.remarks.append(
                    f"{options.as_written(f'{name}_min_lr')}: PyDTNN omits a change below the minimum; nnlo sets the minimum"
                )
        case "stop_at_loss":
            value = options["stop_at_loss_threshold"]
            if metric.endswith("accuracy"):
                # PyDTNN measures accuracies in per cent. Rounding keeps floating-point errors out of the experiment.
                value, source = round(value / 100, 12), f"{source}, in per cent"
            draft.set("train.target", {"metric": _column(metric), "value": value}, source)
        case "warm_up":
            if "warm_up_batches" in options:  # an option of the launcher of 2020 only
                warm_up = {"steps": options["warm_up_batches"], "start": 0.0}
            else:  # from the rate of one rank
                warm_up = {"epochs": options["warm_up_epochs"], "start": round(1 / ranks, 6)}
            draft.set("train.warm_up", warm_up, source)
        case "model_checkpoint":
            _keep_best(draft, options, metric.removeprefix("val_"), source)


def _column(metric: str) -> str:
    # PyDTNN's names without val_ are metrics of the training samples.
    return metric if metric.startswith("val_") else f"train_{metric}"


def _schedule(draft: ExperimentDraft, block: dict[str, Any], source: str) -> None:
    if any(setting.key == "train.schedule" for setting in draft.settings):
        draft.add_untranslatable(
            source, "a run has one schedule, and --lr_schedulers lists another one first"
        )
    else:
        draft.set("train.schedule", block, source)


def _keep_best(draft: ExperimentDraft, options: ParsedOptions, metric: str, source: str) -> None:
    draft.set("checkpoint.best", metric, source)
    every = options["model_checkpoint_save_freq"]
    draft.remarks.append(
        f"model_checkpoint: PyDTNN saves a better model at most every {every} epochs; nnlo keeps the best model of all "
        "epochs"
    )
