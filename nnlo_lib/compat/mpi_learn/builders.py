"""mpi_learn's `Algo`, its builders of the user's network, and its data sources.

`Algo` holds optimizer, loss, and the protocol between workers and master.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import h5py
import numpy as np

from nnlo_lib.compat.importers.keras_options import (
    ARGUMENT_NAMES,
    LOSSES,
    MODES,
    OPTIMIZERS,
    Block,
    master_protocol,
    server_optimizer,
    worker_optimizer,
)
from nnlo_lib.config.base import default, suggest_name
from nnlo_lib.core.errors import UserError
from nnlo_lib.data.readers.array_formats import open_hdf5, refuse_external_storage
from nnlo_lib.data.readers.base import Array

Side = Array | Sequence[Array]  # inputs or outputs of a network: one or several arrays
Generated = Iterator[tuple[Side, Side]]
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
    """Base class of data sources: derive from it and override `generate_data`."""

    # samples per step and worker. If it is None, it becomes the size of the first generated batch, or 100 for an H5Data
    # without overridden methods.
    batch_size: int | None = None
    file_names: Sequence[str] = ()  # files that `generate_data` reads

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
        count = 0
        for name in self.file_names:
            with open_hdf5(name) as file:
                labels = file[self.labels_name]
                count += len(labels if isinstance(labels, h5py.Dataset) else labels[min(labels)])
        return count

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
    if isinstance(item, h5py.Group):
        return [first_array(_read(item[name])) for name in sorted(item)]
    refuse_external_storage(item)
    values: Array = item[:]
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
        """Set the file or the text `json_str` of the network; ValueError without, or with both.

        Args:
            comm: not used.
            weights: path of a file written by Keras's `save_weights`; None keeps the initial weights.
            custom_objects: your classes and functions by their names in the JSON.
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
        arguments = {name: value for name, value in given.items() if name not in OPTIONS}
        own = _parameters(self.options["worker_optimizer_params"])
        for name, reason in self._ineffective(arguments, own):
            raise UserError(f"Algo: {name} has no effect {reason}; remove it")
        force = self.options["elastic_force"]
        if force is not None and not 0 < force < 1:
            raise UserError(
                "Algo: elastic_force is the fraction of the distance that an exchange moves, so it must be between 0 and 1 "
                f"({force}); divide it by the number of workers, as MPIDriver.py does"
            )
        self._server: Block | None = None
        if optimizer is not None and self.mode == "downpour":
            _refuse_unknown(optimizer, arguments)
            self._server = server_optimizer(optimizer, arguments)
        self._worker = self._worker_section(own)

    def _ineffective(self, arguments: Block, own: Block) -> Iterator[tuple[str, str]]:
        """Yield the given options without effect, with the reason; `own` are arguments of the workers' optimizer."""
        options, worker = self.options, self.options["worker_optimizer"]
        for name, modes in USED_IN.items():
            if self.mode not in modes and options[name] != OPTIONS[name]:
                yield name, f"with mode='{options['mode']}', but with mode='{modes[0]}'"
        if arguments and (self.mode != "downpour" or self.optimizer is None):
            yield next(iter(arguments)), "without an optimizer of the master; use worker_optimizer_params"
        given = {ARGUMENT_NAMES.get(word): value for word, value in own.items()}
        for key in ("lr", "momentum"):
            if options[f"elastic_{key}"] == OPTIONS[f"elastic_{key}"]:
                continue
            if worker.lower() != "sgd":
                yield (
                    f"elastic_{key}",
                    f"on worker_optimizer '{worker}', only on 'sgd'; use worker_optimizer_params",
                )
            elif given.get(key, options[f"elastic_{key}"]) != options[f"elastic_{key}"]:
                yield f"elastic_{key}", f"beside {key} in worker_optimizer_params"

    def _worker_section(self, arguments: Block) -> Block:
        """Return `train.optimizer` of the workers. Raises UserError if an argument is unknown."""
        options = self.options
        _refuse_unknown(options["worker_optimizer"], arguments)
        elastic = {"lr": options["elastic_lr"], "momentum": options["elastic_momentum"]}
        section = worker_optimizer(options["worker_optimizer"], arguments, **elastic)
        if (factor := options["gem_lr"]) is None:
            return section
        # mpi_learn's workers scale their updates; nnlo scales each gradient.
        if options["sync_every"] > 1 and factor != 1:
            raise UserError(
                f"Algo: learning_rate ({factor}) of gem scales the sum of {options['sync_every']} steps, which nnlo does "
                "not support; set learning_rate=1.0 and lower the rate of the worker's optimizer, or set sync_every=1"
            )
        return section | {"lr": section.get("lr", default(OPTIMIZERS[section["name"]], "lr")) * factor}

    @property
    def loss(self) -> str:
        """Name of the loss in experiment files."""
        return str(LOSSES.get(self.options["loss"], self.options["loss"]))

    def remarks(self, ranks: int) -> Iterator[str]:
        """Yield the given options that have no effect on this number of ranks, with the reason."""
        if self.mode != "downpour" and self.optimizer not in (None, self.mode):
            yield f"Algo: optimizer '{self.optimizer}' has no effect with mode '{self.mode}', in which only workers have an optimizer"
        own = self.options["worker_optimizer"], self.options["worker_optimizer_params"]
        if self._server and own != (OPTIONS["worker_optimizer"], OPTIONS["worker_optimizer_params"]):
            yield (
                f"Algo: worker_optimizer '{own[0]}' has no effect in Downpour: workers send gradients, and only the master's "
                f"optimizer '{self.optimizer}' updates parameters"
            )
        if ranks == 1 and (self.mode != "downpour" or self.options["sync_every"] != 1):
            yield f"Algo: mode '{self.options['mode']}' and sync_every have no effect on one rank, which has no master"

    def experiment_settings(self, ranks: int, masters: int, synchronous: bool, processes: int = 1) -> Block:
        """Return the equivalent settings of an experiment on `ranks`, masters included, with `processes` for each worker."""
        options = self.options
        if self.mode == "downpour" and self._server is None and ranks > 1:
            raise UserError(
                f"Algo: mode '{options['mode']}' on {ranks} ranks needs the master's optimizer; pass its name, such as 'adam', "
                "instead of None"
            )
        train: Block = {"optimizer": self._server or self._worker}
        if options["validate_every"]:
            # mpi_learn counts the updates of the master, to which all workers contribute; nnlo counts the
            # steps of a worker.
            workers = max(1, (ranks - masters) // processes)
            train["validate_every"] = max(1, options["validate_every"] // workers)
        if ranks == 1:
            return {"train": train, "algorithm": {"name": "allreduce"}}
        if self.mode == "gem" and synchronous:
            raise UserError("MPIManager: gem is asynchronous; set synchronous=False")
        gem = options["gem_momentum"], options["gem_kappa"]
        protocol = master_protocol(self.mode, options["sync_every"], masters, synchronous, *gem)
        if options["elastic_force"] is not None:
            protocol["alpha"] = options["elastic_force"]
        return {"train": train, "algorithm": protocol}


def _refuse_unknown(name: str, arguments: Mapping[str, Any]) -> None:
    """Raise UserError if the optimizer, or an argument by Keras's names, is unknown."""
    name = name.lower()
    if name not in OPTIMIZERS:
        raise UserError(f"Algo: unknown optimizer '{name}'; {suggest_name(name, OPTIMIZERS)}")
    for word in arguments:
        if ARGUMENT_NAMES.get(word) not in OPTIMIZERS[name].model_fields:
            raise UserError(
                f"Algo: '{word}' is neither an option of Algo nor an argument of optimizer {name}; remove it"
            )


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
