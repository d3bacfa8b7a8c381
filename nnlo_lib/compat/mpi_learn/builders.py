"""mpi_learn's `Algo`, its builders of the user's network, and its data sources.

`Algo` holds optimizer, loss, and the protocol between workers and master.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Any

import h5py
import numpy as np

from nnlo_lib.compat.importers.keras_names import ARGUMENT_NAMES, OPTIMIZER_NAMES, SERVER_OPTIMIZER_DEFAULTS
from nnlo_lib.compat.importers.nnlo import LOSSES
from nnlo_lib.config.base import block_types, default, suggest_name
from nnlo_lib.config.optimizer import OptimizerConfig
from nnlo_lib.core.errors import UserError
from nnlo_lib.data.readers.array_formats import open_hdf5, refuse_external_storage
from nnlo_lib.data.readers.base import Array

Side = Array | Sequence[Array]  # inputs or outputs of a network: one or several arrays
Generated = Iterator[tuple[Side, Side]]
Block = dict[str, Any]
CONFIGS = {default(block, "name"): block for block in block_types(OptimizerConfig)}
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


class Data:
    """Base class of data sources: derive from it and override `generate_data`.

    Attributes:
        batch_size: samples per step and worker. If it is None, it becomes the size of the first generated
            batch, or 100 for an H5Data without overridden methods.
        file_names: files that `generate_data` reads.
    """

    batch_size: int | None = None
    file_names: Sequence[str] = ()

    def __init__(self, batch_size: int | None = None) -> None:
        self.batch_size = batch_size

    def set_file_names(self, file_names: Sequence[str]) -> None:
        """Set the files that the next call of `generate_data` reads."""
        self.file_names = list(file_names)

    def generate_data(self) -> Generated:
        """Yield the batches (x, y) of one epoch, or ([x1, x2, ...], y)."""
        raise NotImplementedError(f"{type(self).__name__} must override generate_data()")

    def count_data(self) -> int:
        """Return the number of samples in `file_names`; it generates all of them once."""
        return sum(len(first_array(y)) for _, y in self.generate_data())


class H5Data(Data):
    """Reader of HDF5 files with one array or a group of arrays `features_name` and the array `labels_name`.

    Args:
        cache: existing folder of each node, to which the store is copied before the training; empty: no copy.
        preloading: accepted without effect, because samples are always read ahead.
    """

    def __init__(
        self,
        batch_size: int | None = None,
        features_name: str = "features",
        labels_name: str = "labels",
        *,
        cache: str | None = None,
        preloading: int = 0,
    ) -> None:
        super().__init__(batch_size)
        self.cache, self.preloading = cache or None, preloading
        self.features_name, self.labels_name = features_name, labels_name

    def count_data(self) -> int:
        """Return the number of samples in `file_names`; only files of an overridden `load_data` are read."""
        if type(self).load_data is not H5Data.load_data:
            return sum(len(first_array(self.load_data(name)[1])) for name in self.file_names)
        return sum(self._count(name) for name in self.file_names)

    def _count(self, name: str) -> int:
        with open_hdf5(name) as file:
            labels = file[self.labels_name]
            return len(labels if isinstance(labels, h5py.Dataset) else labels[min(labels)])

    def generate_data(self) -> Generated:
        """Yield the batches of each file in the order of `file_names`."""
        for name in self.file_names:
            x, y = self.load_data(name)
            first = first_array(x)
            size = self.batch_size or len(first)
            for start in range(0, len(first), size):
                yield _rows(x, start, start + size), _rows(y, start, start + size)

    def load_data(self, in_file_name: str) -> tuple[Side, Side]:
        """Return the features and labels of one file; override this method for other file formats."""
        with open_hdf5(in_file_name) as file:
            return _read(file[self.features_name]), _read(file[self.labels_name])


def first_array(side: Side) -> Array:
    """Return the only or first array of inputs or outputs."""
    return side if isinstance(side, np.ndarray) else side[0]


def _read(item: Any) -> Side:
    return [_one(item[name]) for name in sorted(item)] if isinstance(item, h5py.Group) else _one(item)


def _one(dataset: Any) -> Array:
    refuse_external_storage(dataset)
    values: Array = dataset[:]
    return values


def _rows(side: Side, start: int, end: int) -> Side:
    return side[start:end] if isinstance(side, np.ndarray) else [each[start:end] for each in side]


class ModelBuilder:
    """Base class of builders: derive from it and override `build_model`."""

    def __init__(self, comm: Any = None) -> None:
        self.comm = comm

    def build_model(self) -> Any:
        """Return the network to train, a Keras model or a torch.nn.Module; every rank calls it once."""
        raise NotImplementedError(f"{type(self).__name__} must override build_model()")


class ModelFromJson(ModelBuilder):
    """Builder of a network from JSON written by Keras, in a file or a string."""

    def __init__(
        self,
        comm: Any = None,
        filename: str | None = None,
        json_str: str | None = None,
        weights: str | None = None,
        custom_objects: dict[str, Any] | None = None,
    ) -> None:
        """Set the source of the network.

        Args:
            comm: mpi4py communicator; nnlo does not use it.
            json_str: content of a JSON file, instead of `filename`.
            weights: path of a file written by Keras's `save_weights`; None keeps the initial weights.
            custom_objects: your classes and functions by their names in the JSON.

        Raises:
            ValueError: if not exactly one of `filename` and `json_str` is given.
        """
        super().__init__(comm)
        if (filename is None) == (json_str is None):
            raise ValueError("ModelFromJson: pass exactly one of filename and json_str")
        self.filename, self.json_str, self.weights = filename, json_str, weights
        self.custom_objects = custom_objects

    def build_model(self) -> Any:
        """Return the Keras model."""
        from nnlo_lib.models.keras.module import keras_model_from_json, load_keras_json

        model = (
            load_keras_json(self.filename, self.custom_objects)
            if self.filename
            else keras_model_from_json(str(self.json_str), self.custom_objects)
        )
        if self.weights:
            model.load_weights(self.weights)
        return model


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


def worker_section(options: Block, mode: str) -> Block:
    """Return the section `train.optimizer` of the workers.

    Args:
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
