"""Losses, optimizers and master protocols by the names of Keras, NNLO and mpi_learn: one meaning for commands and scripts."""

from collections.abc import Mapping
from typing import Any

from nnlo_lib.compat.importers.draft import ExperimentDraft
from nnlo_lib.compat.importers.options import ParsedOptions
from nnlo_lib.config.base import block_types
from nnlo_lib.config.optimizer import OptimizerConfig

Block = dict[str, Any]
LOSSES = {
    "categorical_crossentropy": "cross_entropy", "sparse_categorical_crossentropy": "cross_entropy",
    "mse": "mse", "mean_squared_error": "mse", "mae": "mae", "mean_absolute_error": "mae",
    "binary_crossentropy": "binary_cross_entropy", "categorical_hinge": "hinge", "hinge": "hinge",
}  # fmt: skip
MODES = {"sgd": "downpour", "downpour": "downpour", "easgd": "easgd", "gem": "gem"}
ARGUMENT_NAMES = {
    "learning_rate": "lr", "lr": "lr", "momentum": "momentum", "nesterov": "nesterov", "beta_1": "beta1",
    "beta_2": "beta2", "rho": "rho", "alpha": "rho", "epsilon": "epsilon", "eps": "epsilon",
    "weight_decay": "weight_decay", "amsgrad": "amsgrad", "centered": "centered", "initial_accumulator_value": "initial",
}  # fmt: skip
OPTIMIZERS = {block.model_fields["name"].default: block for block in block_types(OptimizerConfig)}
# Defaults of the Keras backend's master optimizers (nnlo/train/optimizer.py); other backends have other ones.
SERVER_DEFAULTS: dict[str, Block] = {
    "sgd": {"lr": 0.01}, "adam": {"lr": 0.001}, "rmsprop": {"lr": 0.001}, "adadelta": {"lr": 0.001, "rho": 0.95},
}  # fmt: skip


def worker_optimizer(
    name: str, arguments: Mapping[str, Any], lr: float = 1.0, momentum: float = 0.0
) -> Block:
    """Return `train.optimizer` of the workers; `lr` and the Nesterov `momentum` are of sgd, unless arguments have others."""
    section: Block = {"name": name.lower()}
    if section["name"] == "sgd":
        section |= {"lr": lr, **({"momentum": momentum, "nesterov": True} if momentum else {})}
    return section | renamed_arguments(arguments)


def server_optimizer(name: str, arguments: Mapping[str, Any]) -> Block:
    """Return `train.optimizer` of Downpour's server."""
    name = name.lower()
    return {"name": name, **SERVER_DEFAULTS.get(name, {}), **renamed_arguments(arguments)}


def renamed_arguments(arguments: Mapping[str, Any]) -> Block:
    """Return the known arguments of an optimizer by their names in experiments."""
    return {ARGUMENT_NAMES[word]: value for word, value in arguments.items() if word in ARGUMENT_NAMES}


def master_protocol(
    mode: str, sync_every: int, masters: int, synchronous: bool, momentum: float, kappa: float
) -> Block:
    """Return `algorithm` of several ranks; `momentum` and `kappa` are those of gem."""
    block: Block = {"name": MODES.get(mode, mode), "sync_every": sync_every, "masters": masters}
    if block["name"] in ("downpour", "easgd"):
        return block | {"synchronous": synchronous}
    return block | {"momentum": momentum, "kappa": kappa}


def set_algorithm(draft: ExperimentDraft, options: ParsedOptions, ranks: int) -> None:
    """Set the algorithm and the optimizer that applies the updates.

    An unknown mode is set as it is, so that the validation of the draft rejects it.
    """
    mode = options["mode"]
    if MODES.get(mode) == "downpour":
        _set_server(draft, options)
    else:
        _set_worker(draft, options)
        if ranks > 1 and "optimizer" in options:
            draft.note(
                f"{options.as_written('optimizer')}: no effect, because NNLO's master applies an optimizer only in downpour"
            )
    if ranks == 1:
        source = f"{options.as_written('mode')}; a single process has no master"
        draft.set("algorithm", {"name": "allreduce"}, source)
        return
    protocol = master_protocol(
        mode, options["sync-every"], options["n-masters"], options["synchronous"], options["gem-momentum"], options["gem-kappa"]
    )  # fmt: skip
    names = ("elastic-force", "gem-momentum", "gem-kappa", "sync-every", "synchronous", "n-masters")
    words = [name for name in names if name in options]
    if mode == "easgd":
        protocol["elastic_force"] = options["elastic-force"]
    elif "kappa" in protocol:
        if "gem-lr" in options:
            reason = "gem applies the updates of the workers' optimizer without a factor"
            draft.lose(options.as_written("gem-lr"), reason)
        else:
            draft.note(
                "The original NNLO multiplies the updates of the workers by --gem-lr (default 0.01); nnlo does not scale them."
            )
        if options["synchronous"]:
            draft.lose(options.as_written("synchronous"), "gem is asynchronous in nnlo")
    draft.set("algorithm", protocol, options.as_written("mode", *words))
    if options["synchronous"]:
        draft.note(
            f"{options.as_written('synchronous')}: the master of the original NNLO waits for 95 % of the workers and sums "
            "their updates; nnlo waits for all workers and averages their updates."
        )
    if options["sync-every"] > 1 or options["synchronous"]:
        draft.note(
            "The master of the original NNLO counts epochs by its updates. With --sync-every s (or --synchronous and n "
            "workers), it validates, stops and writes checkpoints only every s (or n) epochs of the workers. In nnlo, an "
            "epoch is a pass over all samples."
        )


def _set_worker(draft: ExperimentDraft, options: ParsedOptions) -> None:
    name, arguments, source = (
        options["worker-optimizer"],
        options["worker-optimizer-params"],
        _worker_words(options),
    )
    elastic, own = _elastic_words(options), {}
    if elastic and name.lower() == "sgd":
        own = {"lr": options["elastic-lr"], "momentum": options["elastic-momentum"]}
        source += f", {elastic}"
    elif elastic:
        draft.note(f"{elastic} (mpi_learn reads it only with --worker-optimizer sgd)")
    section = worker_optimizer(name, arguments, **own)
    for word in arguments.keys() - ARGUMENT_NAMES.keys():
        draft.lose(f"{source}: {word} = {arguments[word]}", f"optimizers of nnlo have no argument {word}")
    if (section["name"], section.get("lr")) == ("sgd", 1.0):
        source += " (without lr, the original NNLO uses 1.0)"
    missing = "" if section["name"] in OPTIMIZERS else f"nnlo has no optimizer {section['name']}"
    draft.set("train.optimizer", section, source, missing)


def _set_server(draft: ExperimentDraft, options: ParsedOptions) -> None:
    section = server_optimizer(options["optimizer"], {})
    missing = f"{options['optimizer']} is not an optimizer of the original NNLO's master"
    source = f"{options.as_written('optimizer')}, applied by the server"
    draft.set("train.optimizer", section, source, "" if section["name"] in SERVER_DEFAULTS else missing)
    draft.note(
        f"{_worker_words(options)}: in the original NNLO, workers apply this optimizer and send the change of their "
        "weights; in nnlo, workers send gradients, and only the server applies an optimizer."
    )
    if elastic := _elastic_words(options):
        draft.lose(
            elastic, "it scales the gradients that workers send in this mode; set `train.optimizer.lr`"
        )


def _elastic_words(options: ParsedOptions) -> str:
    """Return the given options of mpi_learn's workers; those of NNLO have a note, because it never uses them."""
    known = ("elastic-lr", "elastic-momentum")
    return options.as_written(*(name for name in known if name in options and not options.table[name].note))


def _worker_words(options: ParsedOptions) -> str:
    given = ["worker-optimizer-params"] if "worker-optimizer-params" in options else []
    return options.as_written("worker-optimizer", *given)
