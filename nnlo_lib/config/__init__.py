"""The experiment file as typed, frozen models: every key, its default, its unit and its limits.

`nnlo_lib.experiment_file.load` reads a file into an `Experiment`; `docs/experiment.md`, the JSON schema and the
default file are generated from the descriptions below.
"""

from nnlo_lib.config.algorithm import Algorithm, AllReduce, Average, DiLoCo, Downpour
from nnlo_lib.config.data import Augment, ByClass, Data, Dirichlet, Iid, Normalization, Partition, Sorted
from nnlo_lib.config.experiment import Experiment
from nnlo_lib.config.model import Model
from nnlo_lib.config.optimizer import SGD, Adadelta, Adam, Optimizer, RMSprop
from nnlo_lib.config.parallel import Parallel, Resources, Simulation
from nnlo_lib.config.reader import Arrays, Cifar, Folder, Idx, Reader, TFRecord
from nnlo_lib.config.run import Job, Run
from nnlo_lib.config.strict import NAME, Strict, blocks, merge, nearest, refuse
from nnlo_lib.config.train import Train

__all__ = [
    "NAME",
    "SGD",
    "Adadelta",
    "Adam",
    "Algorithm",
    "AllReduce",
    "Arrays",
    "Augment",
    "Average",
    "ByClass",
    "Cifar",
    "Data",
    "DiLoCo",
    "Dirichlet",
    "Downpour",
    "Experiment",
    "Folder",
    "Idx",
    "Iid",
    "Job",
    "Model",
    "Normalization",
    "Optimizer",
    "Parallel",
    "Partition",
    "RMSprop",
    "Reader",
    "Resources",
    "Run",
    "Simulation",
    "Sorted",
    "Strict",
    "TFRecord",
    "Train",
    "blocks",
    "merge",
    "nearest",
    "refuse",
]
