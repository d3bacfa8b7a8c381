"""mpi_learn's `Algo`: optimizer, loss, and the protocol between workers and master."""

from collections.abc import Iterator
from typing import Any

from nnlo_lib.compat.importers.nnlo.training import LOSSES
from nnlo_lib.compat.mpi_learn.optimizer_arguments import optimizer_section, worker_section
from nnlo_lib.core.errors import UserError

Block = dict[str, Any]
MODES = {"sgd": "downpour", "downpour": "downpour", "easgd": "easgd", "gem": "gem"}
OPTIONS = {
    "loss": "binary_crossentropy", "validate_every": None, "sync_every": 1, "mode": "sgd", "worker_optimizer": "sgd",
    "worker_optimizer_params": "{}", "elastic_force": None, "elastic_lr": 1.0, "elastic_momentum": 0.0,
    "gem_lr": None, "gem_momentum": 0.9, "gem_kappa": 2.0,
}  # fmt: skip
# Options that only some modes use; elastic_lr and elastic_momentum are of the workers' SGD.
USED_IN = {
    "elastic_force": ("easgd",), "elastic_lr": ("easgd", "gem"), "elastic_momentum": ("easgd", "gem"),
    "gem_lr": ("gem",), "gem_momentum": ("gem",), "gem_kappa": ("gem",),
}  # fmt: skip
# mpi_learn's driver passes GEM's settings as arguments of the optimizer `gem`.
GEM_ARGUMENTS = {"learning_rate": "gem_lr", "momentum": "gem_momentum", "kappa": "gem_kappa"}


class Algo:
    """Settings of a training under mpi_learn's names.

    Args:
        optimizer: name of the master's optimizer, which only Downpour uses; a single rank applies it itself.
            None: there is none, so that a single rank applies the worker's optimizer.
        kwargs: options in OPTIONS; other names are arguments of `optimizer`. `mode` is sgd (Downpour),
            downpour, easgd or gem.

    Raises:
        UserError: if an option is unknown, has an invalid value, or would have no effect in this mode.
    """

    def __init__(self, optimizer: str | None, **kwargs: Any) -> None:
        self.optimizer = optimizer
        mode = kwargs.get("mode", OPTIONS["mode"])
        if mode not in MODES:
            raise UserError(f"Algo: unknown mode '{mode}'; use one of {', '.join(MODES)}")
        self.mode = MODES[mode]
        names = GEM_ARGUMENTS if mode == "gem" else {}
        given = {names.get(name, name): value for name, value in kwargs.items()}
        self.options = OPTIONS | {name: value for name, value in given.items() if name in OPTIONS}
        self.optimizer_args = {name: value for name, value in given.items() if name not in OPTIONS}
        self._refuse_unused()
        self._refuse_invalid()

    def _refuse_unused(self) -> None:
        for name, modes in USED_IN.items():
            if self.mode not in modes and self.options[name] != OPTIONS[name]:
                raise UserError(
                    f"Algo: {name} has no effect with mode='{self.options['mode']}'; remove it, or set mode='{modes[0]}'"
                )
        if self.optimizer_args and (self.mode != "downpour" or self.optimizer is None):
            word = next(iter(self.optimizer_args))
            raise UserError(
                f"Algo: {word} has no effect, because the master has no optimizer; remove it, or use worker_optimizer_params"
            )

    def _refuse_invalid(self) -> None:
        force = self.options["elastic_force"]
        if force is not None and not 0 < force < 1:
            raise UserError(
                "Algo: elastic_force is the fraction of the distance that an exchange moves, so it must be between 0 and 1 "
                f"({force}); divide it by the number of workers, as MPIDriver.py does"
            )
        if self.optimizer is not None and self.mode == "downpour":
            optimizer_section(self.optimizer, self.optimizer_args)
        worker_section(self.options, self.mode)

    @property
    def loss(self) -> str:
        """Name of the loss in experiment files."""
        return str(LOSSES.get(self.options["loss"], self.options["loss"]))

    def remarks(self, ranks: int) -> Iterator[str]:
        """Yield the given options that have no effect on this number of ranks, with the reason."""
        if self.mode != "downpour" and self.optimizer not in (None, self.mode):
            yield f"Algo: optimizer '{self.optimizer}' has no effect with mode '{self.mode}', in which only workers have an optimizer"
        own = self.options["worker_optimizer"], self.options["worker_optimizer_params"]
        usual = OPTIONS["worker_optimizer"], OPTIONS["worker_optimizer_params"]
        if self.mode == "downpour" and self.optimizer is not None and own != usual:
            yield (
                f"Algo: worker_optimizer '{own[0]}' has no effect in Downpour: workers send gradients, and only the master's "
                f"optimizer '{self.optimizer}' updates parameters"
            )
        if ranks == 1 and (self.mode != "downpour" or self.options["sync_every"] != 1):
            yield f"Algo: mode '{self.options['mode']}' and sync_every have no effect on one rank, which has no master"

    def experiment_settings(self, ranks: int, masters: int, synchronous: bool, processes: int = 1) -> Block:
        """Return the equivalent settings of an experiment.

        Args:
            ranks: number of MPI processes, masters included.
            masters: number of masters.
            synchronous: True if the master waits for all workers.
            processes: number of processes of a worker.

        Raises:
            UserError: if several ranks train by Downpour without an optimizer of the master.
        """
        train: Block = {"optimizer": self._optimizer(ranks)}
        if self.options["validate_every"]:
            # mpi_learn counts the updates of the master, to which all workers contribute; nnlo counts the
            # steps of a worker.
            workers = max(1, (ranks - masters) // processes)
            train["validate_every"] = max(1, self.options["validate_every"] // workers)
        return {
            "train": train,
            "algorithm": self._algorithm(masters, synchronous) if ranks > 1 else {"name": "allreduce"},
        }

    def _optimizer(self, ranks: int) -> Block:
        """Return the master's optimizer for Downpour, else the workers' one: the master then has none."""
        if self.mode == "downpour" and self.optimizer is not None:
            return optimizer_section(self.optimizer, self.optimizer_args)
        if self.mode == "downpour" and ranks > 1:
            raise UserError(
                f"Algo: mode '{self.options['mode']}' on {ranks} ranks needs the master's optimizer; pass its name, such as 'adam', "
                "instead of None"
            )
        return worker_section(self.options, self.mode)

    def _algorithm(self, masters: int, synchronous: bool) -> Block:
        block: Block = {"name": self.mode, "sync_every": self.options["sync_every"], "masters": masters}
        if self.mode == "gem":
            if synchronous:
                raise UserError("MPIManager: gem is asynchronous; set synchronous=False")
            return block | {"momentum": self.options["gem_momentum"], "kappa": self.options["gem_kappa"]}
        if self.mode == "easgd" and self.options["elastic_force"] is not None:
            block["alpha"] = self.options["elastic_force"]
        return block | {"synchronous": synchronous}
