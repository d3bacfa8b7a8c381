"""How many trials there can be."""

from nnlo_lib.config.search import Grid, Search
from nnlo_lib.search.space import Space


def supply(search: Search) -> int | None:
    """Return how many points the method of a search can propose; None if there is no end of them."""
    space, method = Space(search.space), search.method
    return space.grid(method.levels) if isinstance(method, Grid) else space.size
