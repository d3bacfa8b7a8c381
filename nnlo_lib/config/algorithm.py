"""Settings of all algorithms, by name."""

from typing import Annotated

from pydantic import Field

from nnlo_lib.config.algorithm_base import BaseAlgorithmConfig, Capabilities
from nnlo_lib.config.base import block_types
from nnlo_lib.config.collective import CollectiveConfig
from nnlo_lib.config.decentralized import DecentralizedConfig
from nnlo_lib.config.gossip import GossipConfig
from nnlo_lib.config.parameter_server import ParameterServerAlgorithmConfig

AlgorithmConfig = Annotated[
    CollectiveConfig | ParameterServerAlgorithmConfig | GossipConfig | DecentralizedConfig,
    Field(discriminator="name"),
]

ALGORITHM_CONFIGS: dict[str, type[BaseAlgorithmConfig]] = {
    block.model_fields["name"].default: block
    for block in block_types(AlgorithmConfig)
    if issubclass(block, BaseAlgorithmConfig) and not block.alias_of
}
ALGORITHMS: dict[str, Capabilities] = {name: block.capabilities for name, block in ALGORITHM_CONFIGS.items()}
