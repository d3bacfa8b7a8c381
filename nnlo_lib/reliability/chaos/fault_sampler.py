"""Random faults, drawn from a seed: action, rank, failpoint and time."""

from collections import Counter
from collections.abc import Sequence
from random import Random

from nnlo_lib.core.rng import derive_seed
from nnlo_lib.train.fault_injection import FaultAction, InjectedFault

ACTION_WEIGHTS: dict[FaultAction, int] = {
    "kill": 10, "term": 3, "term_all": 2, "kill_launcher": 2, "truncate": 2, "bitflip": 1, "enospc": 2,
}  # fmt: skip
# Disk faults need a checkpoint file: at these failpoints, the rank has written its file of a checkpoint.
DISK_FAULT_FAILPOINTS: dict[FaultAction, set[str]] = {
    "truncate": {"checkpoint.written", "checkpoint.complete", "checkpoint.unnamed", "checkpoint.published"},
    "bitflip": {"checkpoint.written", "checkpoint.complete", "checkpoint.unnamed", "checkpoint.published"},
    "enospc": {"checkpoint.written"},
}
# A full disk costs only the checkpoint; training continues. Every other fault ends the attempt.
FATAL_ACTIONS = ACTION_WEIGHTS.keys() - {"enospc"}


def sample_fault(seed: int, number: int, places: Sequence[Counter[str]], share: float) -> InjectedFault:
    """Return a random fault.

    Args:
        seed: seed of the campaign.
        number: number of the fault.
        places: for each process, how often it reaches each failpoint in an undisturbed training.
        share: share of the training within which the fault is injected. If 0, the training is at its end and
            writes no more checkpoints; disk faults are then replaced by `kill`.
    """
    generator = Random(derive_seed(seed, "chaos", number))
    rank = generator.randrange(len(places))
    counts = places[rank]
    action = generator.choices(list(ACTION_WEIGHTS), list(ACTION_WEIGHTS.values()))[0]
    if not share and action in DISK_FAULT_FAILPOINTS:
        action = "kill"
    # Sorted, because the order of a set of strings differs between processes (PYTHONHASHSEED).
    place = generator.choice(sorted(counts.keys() & DISK_FAULT_FAILPOINTS.get(action, counts.keys())))
    count = generator.randint(1, max(1, int(share * counts[place])))
    # Other faults do not depend on their failpoint: `within` ensures that they are injected even if this
    # attempt reaches it too rarely.
    within = None if action in DISK_FAULT_FAILPOINTS else max(1, int(share * counts.total()))
    return InjectedFault(number, place, rank, count, action, within)
