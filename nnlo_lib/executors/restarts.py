"""Restart policy of fold tasks.

A fold task is restarted as long as its starts lead to attempts: the next start itself asks the retry policy, and writes the
failure of a training that is given up as its result. The search fails if a start that leads to no attempt, or a
cancellation, must not be repeated.
"""

from collections import Counter
from pathlib import Path

from nnlo_lib.batch.job_states import JobReport
from nnlo_lib.config.paths import RunPaths
from nnlo_lib.core.errors import UserError
from nnlo_lib.launch.crash_recovery import all_attempts
from nnlo_lib.search.study.trial import FoldTask
from nnlo_lib.state.attempt_outcome import UNKNOWN_END, Action, EndReport, count_without_record, decide
from nnlo_lib.state.attempts import Attempt


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

    def record_exit(
        self, fold_task: FoldTask, log: Path, job: JobReport = UNKNOWN_END, command_status: int | None = None
    ) -> None:
        """Record that a start ended without a result. Raises UserError if another start would be useless.

        Args:
            fold_task: the fold task.
            log: log of the start.
            job: report of the batch system.
            command_status: exit status of the process, if known.
        """
        made = self.attempts(fold_task)[self._attempts_before[fold_task] :]
        failed = count_without_record(self._failed_starts[fold_task], bool(made), job)
        self._failed_starts[fold_task] = failed
        decision = decide(made, EndReport(job, command_status, tries_without_record=failed))
        if decision.action is Action.GIVE_UP and decision.reason in (None, "canceled"):
            raise UserError(
                f"trial {fold_task.trial}, fold {fold_task.fold} cannot be trained: {decision.why} "
                f"({last_log_line(log)}; see {log})"
            )


def last_log_line(log: Path) -> str:
    """Return the last line of a log, without the prefix of an error message."""
    lines = log.read_text(errors="replace").strip().splitlines() if log.exists() else []
    return lines[-1].removeprefix("nnlo: error: ") if lines else "the log is empty or missing"
