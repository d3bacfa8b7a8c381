"""The policy that an experiment asks for."""

from nnlo_lib.config.search import Fidelity, Full, Halving, Hyperband
from nnlo_lib.search.fidelity import asha, hyperband, median
from nnlo_lib.search.fidelity.policy import EveryEpoch, Policy


def policy(settings: Fidelity) -> Policy:
    """Return the policy of `search.fidelity`."""
    if isinstance(settings, Full):
        return EveryEpoch()
    if isinstance(settings, Halving):
        return asha.Halving(settings.first, settings.factor)
    if isinstance(settings, Hyperband):
        return hyperband.Brackets(settings.first, settings.factor)
    return median.Median(settings.every, settings.grace, settings.trials)
