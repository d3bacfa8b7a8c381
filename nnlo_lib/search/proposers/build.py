"""From `search.method` to the function that proposes."""

from nnlo_lib.config import search as settings
from nnlo_lib.search.proposers.proposer import Method, Proposer
from nnlo_lib.search.space import Space


def proposer(search: settings.Search) -> Proposer:
    """Return who proposes; raises `UserError` for a space that cannot be searched."""
    space = Space(search.space)
    return Proposer(space, method(search, space))


def method(search: settings.Search, space: Space) -> Method:
    """Return the method of a search."""
    match search.method:
        case settings.Forest() as forest:
            from nnlo_lib.search.proposers.forest import ForestFit
            from nnlo_lib.search.proposers.surrogate import ModelBased
            from nnlo_lib.search.proposers.values import in_turn

            return ModelBased(space, search.seed, forest.initial, ForestFit(forest.trees), in_turn)
        case settings.GaussianProcess() as process:
            from nnlo_lib.search.proposers.gp import GaussianProcessFit
            from nnlo_lib.search.proposers.surrogate import ModelBased
            from nnlo_lib.search.proposers.values import standardized

            return ModelBased(space, search.seed, process.initial, GaussianProcessFit(), standardized)
        case settings.Genetic() as genetic:
            from nnlo_lib.search.proposers.genetic import GeneticSearch

            return GeneticSearch(space, search.seed, genetic.population, search.trials)
        case settings.Random():
            from nnlo_lib.search.proposers.draws import RandomDraws

            return RandomDraws(space, search.seed)
        case settings.Sobol():
            from nnlo_lib.search.proposers.draws import SobolSequence

            return SobolSequence(space, search.seed)
        case settings.Grid() as grid:
            from nnlo_lib.search.proposers.draws import GridPoints

            return GridPoints(space, grid.levels)
