"""mpi_learn's `Algo`: optimizer, loss, and the protocol between workers and master."""

import json
from typing import Any

from nnlo_lib.compat.importers.nnlo.training import LOSSES
from nnlo_lib.compat.importers.optimizers import ARGUMENT_NAMES, SERVER_OPTIMIZER_DEFAULTS
from nnlo_lib.core.errors import UserError

Block = dict[str, Any]
MODES = {"sgd": "downpour", "downpour": "downpour", "easgd": "easgd", "gem": "gem"}
OPTIONS = {
    "loss": "binary_crossentropy", "validate_every": None, "sync_every": 1, "mode": "sgd", "worker_optimizer": "sgd",
    "worker_optimizer_params": "{}", "elastic_force": None, "elastic_lr": 1.0, "elastic_momentum": 0.0,
    "gem_lr": None, "gem_momentum": 0.9, "gem_kappa": 2.0,
}  # fmt: skip


class Algo:
    """Settings of a training under mpi_learn's names.

    Args:
        optimizer: name of the master's optimizer; a single rank applies it itself.
        kwargs: options in OPTIONS; other names are arguments of `optimizer`. `mode` is sgd (Downpour),
            downpour, easgd or gem.

    Raises:
        UserError: if the mode is unknown, or if elastic_lr or elastic_momentum differs from its default.
    """

    def __init__(self, optimizer: str, **kwargs: Any) -> None:
        self.optimizer = optimizer
        self.options = OPTIONS | {name: value for name, value in kwargs.items() if name in OPTIONS}
        self.optimizer_args = {name: value for name, value in kwargs.items() if name not in OPTIONS}
        if self.options["mode"] not in MODES:
            raise UserError(f"Algo: unknown mode '{self.options['mode']}'; use one of {', '.join(MODES)}")
        if self.options["elastic_lr"] != 1 or self.options["elastic_momentum"]:
            raise UserError(
                "Algo: elastic_lr and elastic_momentum are not supported; remove them and set elastic_force"
            )

    @property
    def loss(self) -> str:
        """Name of the loss in experiment files."""
        return str(LOSSES.get(self.options["loss"], self.options["loss"]))

    def experiment_settings(self, ranks: int, masters: int, synchronous: bool) -> Block:
        """Return the equivalent settings of an experiment.

        Args:
            ranks: number of MPI processes, masters included.
            masters: number of masters.
            synchronous: True if the master waits for all workers.

        Raises:
            UserError: if an argument of the optimizer is unknown.
        """
        # In downpour the server applies Algo's optimizer; in easgd and gem the workers apply their own. A
        # single rank has no server and applies Algo's optimizer.
        served = ranks > 1 and MODES[self.options["mode"]] == "downpour"
        own = self.options["worker_optimizer"], json.loads(self.options["worker_optimizer_params"])
        name, arguments = (self.optimizer, self.optimizer_args) if served or ranks == 1 else own
        train: Block = {"optimizer": _optimizer_block(name, arguments)}
        if self.options["validate_every"]:
            # mpi_learn counts the updates of the master, to which all workers contribute; nnlo counts the
            # steps of a worker.
            train["validate_every"] = max(1, self.options["validate_every"] // max(1, ranks - masters))
        return {
            "train": train,
            "algorithm": self._algorithm(masters, synchronous) if ranks > 1 else {"name": "allreduce"},
        }

    def _algorithm(self, masters: int, synchronous: bool) -> Block:
        mode = MODES[self.options["mode"]]
        block: Block = {"name": mode, "sync_every": self.options["sync_every"], "masters": masters}
        if mode == "gem":
            return block | {"momentum": self.options["gem_momentum"], "kappa": self.options["gem_kappa"]}
        if mode == "easgd" and self.options["elastic_force"] is not None:
            block["elastic_force"] = self.options["elastic_force"]
        return block | {"synchronous": synchronous}


def _optimizer_block(name: str, arguments: Block) -> Block:
    """Return the settings of an optimizer with nnlo's names. Raises UserError if an argument is unknown."""
    for word in arguments:
        if word not in ARGUMENT_NAMES:
            raise UserError(
                f"Algo: '{word}' is neither an option of Algo nor an argument of optimizer {name}; remove it"
            )
    known = SERVER_OPTIMIZER_DEFAULTS.get(name.lower(), {})
    return {
        "name": name.lower(),
        **known,
        **{ARGUMENT_NAMES[word]: value for word, value in arguments.items()},
    }
