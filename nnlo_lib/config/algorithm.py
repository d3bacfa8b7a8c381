"""Settings of all algorithms, by name."""

from typing import Annotated

from pydantic import Discriminator, Field, Tag

from nnlo_lib.config.algorithm_base import BaseAlgorithmConfig, Capabilities
from nnlo_lib.config.base import block_types
from nnlo_lib.config.collective import CollectiveConfig
from nnlo_lib.config.decentralized import DecentralizedConfig
from nnlo_lib.config.gossip import GossipConfig
from nnlo_lib.config.parameter_server import ParameterServerAlgorithmConfig
from nnlo_lib.config.user_class import BUILT_IN, USER_CLASS, UserClassConfig, user_class_tag
from nnlo_lib.core.lazy_import import load_implementation


class UserAlgorithmConfig(UserClassConfig, BaseAlgorithmConfig):
    """An algorithm of your own: a subclass of nnlo_lib.Algorithm."""

    base = "nnlo_lib.algorithms.base:Algorithm"
    positional = 1  # the communicator

    @property
    def label(self) -> str:
        """Name of the class."""
        return self.class_name

    @property
    def capabilities(self) -> Capabilities:  # type: ignore[override]
        """The capabilities that the class declares; the defaults if the file of a past run is gone."""
        found: Capabilities = load_implementation(self.name).capabilities if self.exists else Capabilities()
        return found


BuiltInAlgorithmConfig = Annotated[
    CollectiveConfig | ParameterServerAlgorithmConfig | GossipConfig | DecentralizedConfig,
    Field(discriminator="name"),
]
AlgorithmConfig = Annotated[
    Annotated[BuiltInAlgorithmConfig, Tag(BUILT_IN)] | Annotated[UserAlgorithmConfig, Tag(USER_CLASS)],
    Discriminator(user_class_tag),
]

# docs/reference/algorithms.md lists the algorithms in this order.
ALGORITHM_CONFIGS: dict[str, type[BaseAlgorithmConfig]] = {
    block.model_fields["name"].default: block
    for block in block_types(BuiltInAlgorithmConfig)
    if issubclass(block, BaseAlgorithmConfig) and not block.alias_of
}
ALGORITHMS: dict[str, Capabilities] = {name: block.capabilities for name, block in ALGORITHM_CONFIGS.items()}
