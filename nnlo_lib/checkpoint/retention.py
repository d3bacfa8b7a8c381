"""Which checkpoints stay."""

from nnlo_lib.checkpoint.manifest import Manifest
from nnlo_lib.config import Checkpoint
from nnlo_lib.config.stopping import better_of


def kept(wish: Checkpoint, checkpoints: dict[int, Manifest]) -> set[int]:
    """Return the numbers of those to keep: the newest, every so many-th, the best of those that end an epoch."""
    numbers = sorted(checkpoints)
    newest = set(numbers[-wish.keep :])
    for_good = {number for number in numbers if wish.keep_every and number % wish.keep_every == 0}
    return newest | for_good | _best(wish, checkpoints)


def _best(wish: Checkpoint, checkpoints: dict[int, Manifest]) -> set[int]:
    column = f"val_{wish.best}"
    values = {
        number: manifest.metrics[column]
        for number, manifest in checkpoints.items()
        if column in manifest.metrics
    }
    if not values:
        return set()
    choose = max if better_of(column) == "larger" else min
    return {choose(values, key=lambda number: values[number])}
