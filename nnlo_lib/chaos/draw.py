"""Which fault strikes which rank, where and when: drawn from a seed."""

from collections import Counter
from collections.abc import Sequence
from random import Random

from nnlo_lib.streams import stream
from nnlo_lib.train.faults import Action, Fault

WEIGHTS: dict[Action, int] = {
    "kill": 10, "term": 3, "term_all": 2, "kill_launcher": 2, "torn": 2, "flipped": 1, "full": 2,
}  # fmt: skip
ON_DISK: dict[Action, set[str]] = {
    "torn": {"checkpoint.written", "checkpoint.complete", "checkpoint.unnamed", "checkpoint.published"},
    "flipped": {"checkpoint.written", "checkpoint.complete", "checkpoint.unnamed", "checkpoint.published"},
    "full": {"checkpoint.written"},
}
DEADLY = WEIGHTS.keys() - {"full"}


def draw(seed: int, number: int, places: Sequence[Counter[str]], share: float) -> Fault:
    """Return a fault that strikes before an attempt has done `share` of the run.

    places: how often each rank reaches which place in a whole run. At the end of the run, where nothing is written any
    more, no disk fails.
    """
    lots = Random(stream(seed, "chaos", number))
    rank = lots.randrange(len(places))
    found = places[rank]
    action = lots.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
    if not share and action in ON_DISK:
        action = "kill"
    place = lots.choice(sorted(found.keys() & ON_DISK.get(action, found.keys())))
    count = lots.randint(1, max(1, int(share * found[place])))
    within = None if action in ON_DISK else max(1, int(share * found.total()))
    return Fault(number, place, rank, count, action, within)
