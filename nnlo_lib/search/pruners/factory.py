"""Factory of pruners."""

from nnlo_lib.config.search import FidelityConfig
from nnlo_lib.core.lazy_import import load_implementation
from nnlo_lib.search.pruners.base import Pruner


def build_pruner(config: FidelityConfig) -> Pruner:
    """Return the pruner of `search.fidelity`."""
    kind: type[Pruner] = load_implementation(config.reference)
    return kind.from_config(config)
