"""Build the compressor that an experiment describes."""

from nnlo_lib.comm.compression.base import Compressor
from nnlo_lib.config.compression import BaseCompressionConfig
from nnlo_lib.core.lazy_import import load_implementation


def build_compressor(config: BaseCompressionConfig, seed: int) -> Compressor:
    """Return a compressor for one vector; vectors that should not share random draws need different seeds."""
    kind: type[Compressor] = load_implementation(config.reference)
    return kind.from_config(config, seed)
