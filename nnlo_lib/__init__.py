"""Neural network learning and optimization: distributed training as one reproducible workflow.

The public Python API; see docs/reference/python_api.md. Names are imported on first access, so that `import nnlo_lib` is fast.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from nnlo_lib.core.shadowed_packages import refuse_shadowed_packages

if TYPE_CHECKING:
    from nnlo_lib.algorithms.base import Algorithm, ReplicaView, SampleShare
    from nnlo_lib.api import SearchResult, load_experiment, search, simulate, train
    from nnlo_lib.comm.compression.base import Compressor
    from nnlo_lib.config import Experiment
    from nnlo_lib.config.algorithm_base import Capabilities
    from nnlo_lib.core.errors import UserError
    from nnlo_lib.core.installation import __version__ as __version__
    from nnlo_lib.data.readers.base import DatasetContents, contents_of_arrays
    from nnlo_lib.problems.base import BatchLoss, Problem
    from nnlo_lib.search.pruners import Pruner
    from nnlo_lib.search.samplers.base import Sampler
    from nnlo_lib.workflow.trained_run import ExperimentResults, TrainedRun, load_results, load_run

# Here, because commands, ranks, Snakemake's plugins and scripts import this file first.
refuse_shadowed_packages()

__all__ = [
    "Algorithm",
    "BatchLoss",
    "Capabilities",
    "Compressor",
    "DatasetContents",
    "Experiment",
    "ExperimentResults",
    "Problem",
    "Pruner",
    "ReplicaView",
    "SampleShare",
    "Sampler",
    "SearchResult",
    "TrainedRun",
    "UserError",
    "contents_of_arrays",
    "load_experiment",
    "load_results",
    "load_run",
    "search",
    "simulate",
    "train",
]

_HOMES = {
    "nnlo_lib.algorithms.base": (
        "Algorithm",
        "ReplicaView",
        "SampleShare",
    ),
    "nnlo_lib.api": (
        "SearchResult",
        "load_experiment",
        "search",
        "simulate",
        "train",
    ),
    "nnlo_lib.comm.compression.base": ("Compressor",),
    "nnlo_lib.config": ("Experiment",),
    "nnlo_lib.config.algorithm_base": ("Capabilities",),
    "nnlo_lib.core.errors": ("UserError",),
    "nnlo_lib.core.installation": ("__version__",),
    "nnlo_lib.data.readers.base": (
        "DatasetContents",
        "contents_of_arrays",
    ),
    "nnlo_lib.problems.base": (
        "BatchLoss",
        "Problem",
    ),
    "nnlo_lib.search.pruners": ("Pruner",),
    "nnlo_lib.search.samplers.base": ("Sampler",),
    "nnlo_lib.workflow.trained_run": (
        "ExperimentResults",
        "TrainedRun",
        "load_results",
        "load_run",
    ),
}


def __getattr__(name: str) -> Any:
    if not any(name in names for names in _HOMES.values()):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _exported(name)


def _exported(name: str) -> Any:
    home = next(module for module, names in _HOMES.items() if name in names)
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


class _CallablePackage(ModuleType):
    """A package that is called as the function of the same name in the API: nnlo_lib.train, nnlo_lib.search."""

    def __call__(self, *args: Any, **settings: Any) -> Any:
        return _exported(self.__name__.rpartition(".")[2])(*args, **settings)


class _Root(ModuleType):
    """This package: the import of a sub-package sets an attribute, which must not hide the API's function."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name in __all__ and isinstance(value, ModuleType):
            value.__class__ = _CallablePackage
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Root
