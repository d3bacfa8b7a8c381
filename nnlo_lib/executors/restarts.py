"""How often a leaf is started again: for ever, as long as each start leads to an attempt, which judges for itself."""

from collections import Counter
from pathlib import Path

from nnlo_lib.config.paths import RunPaths
from nnlo_lib.core.errors import UserError
from nnlo_lib.launch.crash_recovery import all_attempts
from nnlo_lib.search.study.trial import FoldTask
from nnlo_lib.state.attempts import Attempt

MAX_FAILED_STARTS = 3  # starts one after another that led to no attempt


class RestartPolicy:
    """Counts starts of leaves. folder: of the search."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._starts: Counter[FoldTask] = Counter()
        self._vain: Counter[FoldTask] = Counter()
        self._before: dict[FoldTask, int] = {}

    def record_start(self, leaf: FoldTask, lives: bool = False) -> int:
        """Return which start this is; lives: an attempt of before is still at it."""
        self._before[leaf] = len(self.attempts(leaf, ended=not lives))
        self._starts[leaf] += 1
        return self._starts[leaf]

    def attempts(self, leaf: FoldTask, ended: bool = True) -> list[Attempt]:
        """Return the attempts at a leaf's fold; ended: even one that left no record has."""
        return all_attempts(RunPaths(leaf.run_folder(self._folder)).state.folder, 0, ended)

    def record_exit(self, leaf: FoldTask, log: Path) -> None:
        """Take note that a start has ended without a result. Raises UserError if one more would be in vain, too."""
        began = len(self.attempts(leaf)) > self._before[leaf]
        self._vain[leaf] = 0 if began else self._vain[leaf] + 1
        if self._vain[leaf] == MAX_FAILED_STARTS:
            raise UserError(
                f"trial {leaf.trial} did not begin to train, {MAX_FAILED_STARTS} times: {last_log_line(log)}; see {log}"
            )


def last_log_line(log: Path) -> str:
    """Return the last line of a log."""
    lines = log.read_text(errors="replace").strip().splitlines() if log.exists() else []
    return lines[-1].removeprefix("nnlo: error: ") if lines else "it said nothing"
