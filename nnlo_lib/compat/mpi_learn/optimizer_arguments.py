"""Optimizers of mpi_learn's `Algo`: of the master, and of the workers with elastic_lr, elastic_momentum or gem_lr."""

import json
from typing import Any

from nnlo_lib.compat.importers.optimizers import ARGUMENT_NAMES, OPTIMIZER_NAMES, SERVER_OPTIMIZER_DEFAULTS
from nnlo_lib.config.base import block_types, default, suggest_name
from nnlo_lib.config.optimizer import OptimizerConfig
from nnlo_lib.core.errors import UserError

Block = dict[str, Any]
CONFIGS = {default(block, "name"): block for block in block_types(OptimizerConfig)}


def optimizer_section(name: str, arguments: Block) -> Block:
    """Return the section `train.optimizer` of an optimizer with arguments by Keras's names.

    Raises UserError if the optimizer or an argument is unknown.
    """
    name = name.lower()
    if name not in OPTIMIZER_NAMES:
        raise UserError(f"Algo: unknown optimizer '{name}'; {suggest_name(name, OPTIMIZER_NAMES)}")
    for word in arguments:
        if ARGUMENT_NAMES.get(word) not in CONFIGS[name].model_fields:
            raise UserError(
                f"Algo: '{word}' is neither an option of Algo nor an argument of optimizer {name}; remove it"
            )
    known = SERVER_OPTIMIZER_DEFAULTS.get(name, {})
    return {"name": name, **known, **{ARGUMENT_NAMES[word]: value for word, value in arguments.items()}}


def worker_section(options: Block, mode: str) -> Block:
    """Return the section `train.optimizer` of the workers.

    Args:
        options: options of Algo.
        mode: algorithm in experiment files.

    Raises:
        UserError: if the optimizer or an argument is unknown, or if an option would have no effect.
    """
    section = optimizer_section(options["worker_optimizer"], _parameters(options["worker_optimizer_params"]))
    # In Downpour, workers send gradients, and only the master's optimizer updates parameters.
    if mode == "downpour":
        return section if section["name"] != "sgd" else section | _sgd(options)
    if section["name"] == "sgd":
        section |= _sgd(options)
    elif (options["elastic_lr"], options["elastic_momentum"]) != (1, 0):
        raise UserError(
            f"Algo: elastic_lr and elastic_momentum belong to worker_optimizer 'sgd', not to '{section['name']}'; "
            "remove them, and use worker_optimizer_params"
        )
    return section if options["gem_lr"] is None else section | _scaled(section, options)


def _parameters(text: str | Block) -> Block:
    """Return the dictionary that is written as JSON. Raises UserError if the text is no dictionary."""
    try:
        values = json.loads(text) if isinstance(text, str) else text
    except json.JSONDecodeError:
        values = None
    if not isinstance(values, dict):
        raise UserError(
            f"Algo: worker_optimizer_params: not a dictionary in JSON ({text}); write for example '{{\"lr\": 0.01}}'"
        )
    return values


def _sgd(options: Block) -> Block:
    """Return the arguments of the workers' SGD: rate 1 by default, as in mpi_learn, and Nesterov momentum.

    Raises UserError if elastic_lr or elastic_momentum contradicts worker_optimizer_params.
    """
    given = {
        ARGUMENT_NAMES[word]: value for word, value in _parameters(options["worker_optimizer_params"]).items()
    }
    for name, key, usual in (("elastic_lr", "lr", 1), ("elastic_momentum", "momentum", 0)):
        if key in given and options[name] not in (usual, given[key]):
            raise UserError(
                f"Algo: {name} ({options[name]}) contradicts worker_optimizer_params ({key} {given[key]}); remove one of them"
            )
    momentum = options["elastic_momentum"]
    nesterov = {"momentum": momentum, "nesterov": True} if momentum else {}
    return {"lr": options["elastic_lr"], **nesterov} | given


def _scaled(section: Block, options: Block) -> Block:
    """Return the learning rate multiplied by GEM's, by which mpi_learn's workers scale their updates.

    Raises UserError if a worker takes several steps between two updates, whose gradients would change.
    """
    if options["sync_every"] > 1 and options["gem_lr"] != 1:
        raise UserError(
            f"Algo: learning_rate ({options['gem_lr']}) of gem scales the sum of {options['sync_every']} steps, which nnlo does "
            "not support; set learning_rate=1.0 and lower the rate of the worker's optimizer, or set sync_every=1"
        )
    rate = section.get("lr", default(CONFIGS[section["name"]], "lr"))
    return {"lr": rate * options["gem_lr"]}
