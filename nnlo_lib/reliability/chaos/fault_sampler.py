"""Which fault strikes which rank, where and when: drawn from a seed."""

from collections import Counter
from collections.abc import Sequence
from random import Random

from nnlo_lib.core.rng import derive_seed
from nnlo_lib.train.fault_injection import FaultAction, InjectedFault

ACTION_WEIGHTS: dict[FaultAction, int] = {
    "kill": 10, "term": 3, "term_all": 2, "kill_launcher": 2, "truncate": 2, "bitflip": 1, "enospc": 2,
}  # fmt: skip
DISK_FAULT_FAILPOINTS: dict[FaultAction, set[str]] = {
    "truncate": {"checkpoint.written", "checkpoint.complete", "checkpoint.unnamed", "checkpoint.published"},
    "bitflip": {"checkpoint.written", "checkpoint.complete", "checkpoint.unnamed", "checkpoint.published"},
    "enospc": {"checkpoint.written"},
}
FATAL_ACTIONS = ACTION_WEIGHTS.keys() - {"enospc"}


def sample_fault(seed: int, number: int, places: Sequence[Counter[str]], share: float) -> InjectedFault:
    """Return a fault that strikes before an attempt has done `share` of the run.

    places: how often each rank reaches which place in a whole run. At the end of the run, where nothing is written any
    more, no disk fails.
    """
    lots = Random(derive_seed(seed, "chaos", number))
    rank = lots.randrange(len(places))
    found = places[rank]
    action = lots.choices(list(ACTION_WEIGHTS), list(ACTION_WEIGHTS.values()))[0]
    if not share and action in DISK_FAULT_FAILPOINTS:
        action = "kill"
    place = lots.choice(sorted(found.keys() & DISK_FAULT_FAILPOINTS.get(action, found.keys())))
    count = lots.randint(1, max(1, int(share * found[place])))
    within = None if action in DISK_FAULT_FAILPOINTS else max(1, int(share * found.total()))
    return InjectedFault(number, place, rank, count, action, within)
