"""Factory of samplers."""

from nnlo_lib.config.search import SearchConfig
from nnlo_lib.core.lazy_import import load_implementation
from nnlo_lib.search.samplers.base import Sampler, UntriedPointSampler
from nnlo_lib.search.space.space import SearchSpace


def build_sampler(search: SearchConfig) -> UntriedPointSampler:
    """Return the sampler of `search.method`. Raises UserError if the space cannot be searched."""
    space, kind = SearchSpace(search.space), load_implementation(search.method.reference)
    method: Sampler = kind.from_config(search.method, space, search)
    return UntriedPointSampler(space, method)
