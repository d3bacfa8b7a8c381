"""How often a leaf is started again: for ever, as long as each start leads to an attempt, which judges for itself."""

from collections import Counter
from pathlib import Path

from nnlo_lib.errors import UserError
from nnlo_lib.launch.obituary import known
from nnlo_lib.search.trial import Leaf
from nnlo_lib.state.attempts import Attempt

IN_VAIN = 3  # starts one after another that led to no attempt


class Tries:
    """Counts starts of leaves. folder: of the search."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._starts: Counter[Leaf] = Counter()
        self._vain: Counter[Leaf] = Counter()
        self._before: dict[Leaf, int] = {}

    def begin(self, leaf: Leaf, lives: bool = False) -> int:
        """Return which start this is; lives: an attempt of before is still at it."""
        self._before[leaf] = len(self.attempts(leaf, ended=not lives))
        self._starts[leaf] += 1
        return self._starts[leaf]

    def attempts(self, leaf: Leaf, ended: bool = True) -> list[Attempt]:
        """Return the attempts at a leaf's fold; ended: even one that left no record has."""
        return known(leaf.folder(self._folder) / "state", 0, ended)

    def end(self, leaf: Leaf, log: Path) -> None:
        """Take note that a start has ended without a result. Raises UserError if one more would be in vain, too."""
        began = len(self.attempts(leaf)) > self._before[leaf]
        self._vain[leaf] = 0 if began else self._vain[leaf] + 1
        if self._vain[leaf] == IN_VAIN:
            raise UserError(
                f"trial {leaf.trial} did not begin to train, {IN_VAIN} times: {last_words(log)}; see {log}"
            )


def last_words(log: Path) -> str:
    """Return the last line of a log."""
    lines = log.read_text(errors="replace").strip().splitlines() if log.exists() else []
    return lines[-1].removeprefix("nnlo: error: ") if lines else "it said nothing"
