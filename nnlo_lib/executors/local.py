"""Executor that trains fold tasks in processes of this machine."""

import os
import subprocess
import sys
import time
from pathlib import Path

from nnlo_lib.config.paths import RunPaths
from nnlo_lib.core.errors import UserError
from nnlo_lib.core.file_access import cause_of
from nnlo_lib.core.logging_setup import get_logger
from nnlo_lib.executors.progress import RestartPolicy
from nnlo_lib.launch.launcher import die_with_parent
from nnlo_lib.launch.stop_request import SignalRecorder
from nnlo_lib.search.study.trial import FoldTask
from nnlo_lib.state.attempt_outcome import EXIT_PREEMPTED

logger = get_logger(__name__)

PROCESS_POLL_INTERVAL_S = 0.05  # between two checks of the processes
SAVE_TIMEOUT_S = 900.0  # for all processes to save and exit


class LocalExecutor:
    """Trains fold tasks in processes of this machine; they save and exit after a stop signal, and when this process ends."""

    def __init__(
        self, folder: Path, launcher: str, signals: SignalRecorder, python: str = sys.executable
    ) -> None:
        self._folder, self._launcher, self._signals, self._python = folder, launcher, signals, python
        self._running: dict[FoldTask, subprocess.Popen[bytes]] = {}
        self._restarts = RestartPolicy(folder)

    def start(self, fold_task: FoldTask) -> None:
        """Start a process; append its output to `trial.log` in the run folder of the fold.

        Raises UserError if the log cannot be written.
        """
        log = self._log(fold_task)
        try:
            log.parent.mkdir(parents=True, exist_ok=True)
            file = log.open("ab")
        except OSError as error:
            raise UserError(f"cannot write {log}: {cause_of(error, log)}") from error
        with file:
            # Unbuffered output: the log must be complete even if the process is killed.
            self._running[fold_task] = subprocess.Popen(
                self._command(fold_task), stdout=file, stderr=file, stdin=subprocess.DEVNULL,
                env={**os.environ, "PYTHONUNBUFFERED": "1"}, preexec_fn=die_with_parent,
            )  # fmt: skip

    def wait(self) -> bool:
        """Wait until a process has ended; return False if this process or one of them was asked to stop.

        All processes have ended when it returns False.
        """
        while not self._signals.first:
            if ended := [
                fold_task for fold_task, process in self._running.items() if process.poll() is not None
            ]:
                # A list, because `all` would skip the exits after the first one that stops the search.
                may_continue = [self._handle_exit(fold_task) for fold_task in ended]
                return all(may_continue) or self.stop()
            time.sleep(PROCESS_POLL_INTERVAL_S)
        return self.stop()

    def stop(self) -> bool:
        """Ask all processes to save and exit; kill processes that exceed the timeout. Return False."""
        if self._running:
            logger.info(
                f"waiting up to {SAVE_TIMEOUT_S:.0f} s until {len(self._running)} running trainings have saved and exited"
            )
        for process in self._running.values():
            process.terminate()
        end = time.monotonic() + SAVE_TIMEOUT_S
        for process in self._running.values():
            try:
                process.wait(max(0.0, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
        self._running.clear()
        return False

    def _command(self, fold_task: FoldTask) -> list[str]:
        numbers = [str(number) for number in (fold_task.trial, fold_task.fold, fold_task.epochs)]
        command = [self._python, "-P", "-m", "nnlo_lib.cli", "task", "trial", str(self._folder), *numbers]
        attempt = self._restarts.record_start(fold_task)  # the first start ignores earlier failures
        return [*command, "--launcher", self._launcher, *(["--attempt", str(attempt)] if attempt > 1 else [])]

    def _handle_exit(self, fold_task: FoldTask) -> bool:
        """Restart a failed process; return False if it was asked to stop. Raises UserError if it would fail again."""
        status = self._running.pop(fold_task).returncode
        if status in (0, EXIT_PREEMPTED):
            return status == 0
        try:
            self._restarts.record_exit(fold_task, self._log(fold_task), command_status=status)
        except UserError:
            self.stop()
            raise
        self.start(fold_task)
        return True

    def _log(self, fold_task: FoldTask) -> Path:
        return RunPaths(fold_task.run_folder(self._folder)).trial_log
