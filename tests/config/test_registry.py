"""Settings name their implementation, which is imported when it is built."""

import subprocess
import sys

import pytest
import torch

from nnlo_lib.algorithms.base import Algorithm
from nnlo_lib.comm.compression.base import Compressor
from nnlo_lib.config.algorithm import ALGORITHM_CONFIGS, ALGORITHMS, AlgorithmConfig, BuiltInAlgorithmConfig
from nnlo_lib.config.base import UserClassConfig, block_types
from nnlo_lib.config.compression import CompressionConfig
from nnlo_lib.config.optimizer import OptimizerConfig
from nnlo_lib.config.problem import ProblemConfig
from nnlo_lib.config.reader import BuiltInReaderConfig
from nnlo_lib.config.search import FidelityConfig, SamplerConfig
from nnlo_lib.core.user_code import load_implementation
from nnlo_lib.data.readers.base import reader_function
from nnlo_lib.problems.base import Problem
from nnlo_lib.search.pruners import Pruner
from nnlo_lib.search.samplers.base import Sampler

KINDS = {
    AlgorithmConfig: Algorithm,
    CompressionConfig: Compressor,
    SamplerConfig: Sampler,
    FidelityConfig: Pruner,
    ProblemConfig: Problem,
    OptimizerConfig: torch.optim.Optimizer,
}
MEMBERS = [
    (member, base)
    for union, base in KINDS.items()
    for member in block_types(union)
    if not issubclass(member, UserClassConfig)
]


@pytest.mark.parametrize(("config", "base"), MEMBERS, ids=lambda each: each.__name__)
def test_every_settings_class_has_an_implementation(config, base):
    assert issubclass(load_implementation(config.implementation), base)
    assert "implementation" in vars(config) or config.alias_of
    assert "implementation" not in config.model_fields


@pytest.mark.parametrize("config", [*block_types(BuiltInReaderConfig)])
def test_a_reader_is_the_module_of_its_name(config):
    name = config.model_fields["name"].default
    assert callable(load_implementation(reader_function(name)))


@pytest.mark.processes
def test_settings_are_read_without_their_implementations():
    code = "import sys, nnlo_lib.config; print({'torch', 'sklearn', 'scipy'} & set(sys.modules))"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "set()"


def test_the_table_has_a_row_for_each_algorithm_and_none_for_an_alias():
    names = [block.model_fields["name"].default for block in block_types(BuiltInAlgorithmConfig)]
    assert list(ALGORITHMS) == [name for name in names if name != "cadmm"]
    assert ALGORITHM_CONFIGS["dinno"].capabilities is ALGORITHMS["dinno"]
