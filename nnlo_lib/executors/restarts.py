"""Restart policy of fold tasks.

A fold task is restarted as long as each start leads to an attempt, which applies the retry policy itself.
After MAX_FAILED_STARTS consecutive starts that led to no attempt, the search fails.
"""

from collections import Counter
from pathlib import Path

from nnlo_lib.config.paths import RunPaths
from nnlo_lib.core.errors import UserError
from nnlo_lib.launch.crash_recovery import all_attempts
from nnlo_lib.search.study.trial import FoldTask
from nnlo_lib.state.attempts import Attempt

MAX_FAILED_STARTS = 3  # consecutive starts that led to no attempt


class RestartPolicy:
    """Counts the starts of fold tasks; `folder` is the folder of the search."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._starts: Counter[FoldTask] = Counter()
        self._failed_starts: Counter[FoldTask] = Counter()
        self._attempts_before: dict[FoldTask, int] = {}

    def record_start(self, fold_task: FoldTask, is_running: bool = False) -> int:
        """Return the number of this start, from 1.

        `is_running`: a job of an earlier driver is still running.
        """
        self._attempts_before[fold_task] = len(self.attempts(fold_task, ended=not is_running))
        self._starts[fold_task] += 1
        return self._starts[fold_task]

    def withdraw_start(self, fold_task: FoldTask) -> None:
        """Do not count the last start, because the queue refused the job."""
        self._starts[fold_task] -= 1

    def attempts(self, fold_task: FoldTask, ended: bool = True) -> list[Attempt]:
        """Return the attempts at the fold of a task.

        `ended`: no attempt is running; an attempt that left a lease but no record is then included.
        """
        # The number of ranks (0) is not used: only the number and the reasons of attempts matter here.
        return all_attempts(RunPaths(fold_task.run_folder(self._folder)).state.folder, 0, ended)

    def is_canceled(self, fold_task: FoldTask, job: str) -> bool:
        """Return True if the last attempt recorded that a person canceled the job."""
        last = self.attempts(fold_task)[-1:]
        return any((each.job, each.reason) == (job, "canceled") for each in last)

    def record_exit(self, fold_task: FoldTask, log: Path) -> None:
        """Count a start that ended without a result. Raises UserError if a restart would be useless."""
        began = len(self.attempts(fold_task)) > self._attempts_before[fold_task]
        self._failed_starts[fold_task] = 0 if began else self._failed_starts[fold_task] + 1
        if self._failed_starts[fold_task] == MAX_FAILED_STARTS:
            raise UserError(
                f"trial {fold_task.trial} did not start training in {MAX_FAILED_STARTS} consecutive starts: "
                f"{last_log_line(log)}; see {log}"
            )


def last_log_line(log: Path) -> str:
    """Return the last line of a log, without the prefix of an error message."""
    lines = log.read_text(errors="replace").strip().splitlines() if log.exists() else []
    return lines[-1].removeprefix("nnlo: error: ") if lines else "the log is empty or missing"
