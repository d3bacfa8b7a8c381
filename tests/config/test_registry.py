"""Settings name their implementation; a new algorithm, compressor, sampler or pruner needs only two classes."""

import subprocess
import sys
from dataclasses import dataclass
from typing import Literal

import pytest
import torch

from nnlo_lib.algorithms.base import Algorithm
from nnlo_lib.algorithms.factory import build_algorithm, roles
from nnlo_lib.algorithms.local_sgd import Individual
from nnlo_lib.comm.compression.approximation import RandomK
from nnlo_lib.comm.compression.base import Compressor, build_compressor
from nnlo_lib.comm.simulated.communicator import SimulatedWorld
from nnlo_lib.config import Run
from nnlo_lib.config.algorithm import ALGORITHM_CONFIGS, ALGORITHMS, AlgorithmConfig, BuiltInAlgorithmConfig
from nnlo_lib.config.algorithm_base import BaseAlgorithmConfig, Capabilities
from nnlo_lib.config.base import ImplementedConfig, UserClassConfig, block_types
from nnlo_lib.config.compression import BaseCompressionConfig, CompressionConfig
from nnlo_lib.config.optimizer import OptimizerConfig
from nnlo_lib.config.problem import ProblemConfig
from nnlo_lib.config.reader import BuiltInReaderConfig
from nnlo_lib.config.search import FidelityConfig, SamplerConfig, SearchConfig
from nnlo_lib.core.user_code import load_implementation
from nnlo_lib.data.readers.base import reader_function
from nnlo_lib.problems.base import Problem
from nnlo_lib.search.pruners import Pruner, build_pruner
from nnlo_lib.search.samplers.base import Sampler, build_sampler
from nnlo_lib.search.study.snapshot import StudySnapshot

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


class ServedAloneConfig(BaseAlgorithmConfig):
    name: Literal["served_alone"] = "served_alone"
    implementation = f"{__name__}:ServedAlone"
    capabilities = Capabilities(min_ranks=3)
    factor: float = 2.0

    @property
    def servers(self) -> int:
        return 1


class ServedAlone(Individual):
    """Keeps its settings and the values derived from the run."""

    @classmethod
    def from_config(cls, config, context):
        made = cls(context.comm)
        made.factor, made.degree, made.compressor = (
            config.factor,
            context.neighbors.degree,
            context.compressor,
        )
        return made


@pytest.mark.parametrize("group", [1, 2])
def test_an_algorithm_is_added_by_its_settings_and_its_class(group):
    given = {"parallel": {"ranks": 5, "transport": "simulated", "processes_per_worker": 1}}
    run = Run.model_validate(given)
    parallel = run.parallel.model_copy(update={"processes_per_worker": group})
    run = run.model_copy(update={"algorithm": ServedAloneConfig(factor=3.0), "parallel": parallel})
    made = SimulatedWorld(5).run(lambda comm: build_algorithm(run, comm, 0))[0]
    leader = made if group == 1 else made._outer
    assert isinstance(leader, ServedAlone)
    assert (leader.factor, leader.degree, leader.compressor.lossless) == (3.0, 4 if group == 1 else 2, True)
    assert roles(run, 3) == ["server", "worker", "worker"]


class HalvesConfig(BaseCompressionConfig):
    name: Literal["halves"] = "halves"
    implementation = f"{__name__}:Halves"
    fraction: float = 0.5


class Halves(RandomK):
    """Random-k compressor that keeps half of the values, by the default of its settings."""


def test_a_compressor_is_added_by_its_settings_and_its_class():
    made, vector = build_compressor(HalvesConfig(), seed=3), torch.arange(1.0, 9.0)
    out = torch.empty_like(vector)
    made.decode(made.encode(vector, 0, 0), out)
    assert isinstance(made, Halves)
    assert made.kept(vector) == 4 == int((out == vector).sum())


class FirstConfig(ImplementedConfig):
    name: Literal["first"] = "first"
    implementation = f"{__name__}:First"


@dataclass(frozen=True)
class First(Sampler):
    """Proposes the first point of the space."""

    space: object

    @classmethod
    def from_config(cls, config, space, search):
        return cls(space)

    def __call__(self, number, observed):
        return self.space.points()


class AtOnceConfig(ImplementedConfig):
    name: Literal["at_once"] = "at_once"
    implementation = f"{__name__}:AtOnce"
    epochs: int = 2


@dataclass(frozen=True)
class AtOnce(Pruner):
    """Stops every trial after `epochs` epochs."""

    epochs: int

    def rungs(self, trial, epochs):
        return (self.epochs, epochs)

    def promote(self, known):
        return None


def test_a_sampler_and_a_pruner_are_added_by_their_settings_and_classes():
    search = SearchConfig(space={"x": [3, 4]}).model_copy(update={"method": FirstConfig()})
    assert build_sampler(search)(0, StudySnapshot(search, 1, [], {})) == {"x": 3}
    assert build_pruner(AtOnceConfig(epochs=4)).rungs(0, 9) == (4, 9)
