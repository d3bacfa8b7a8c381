"""Executor that trains fold tasks as Slurm jobs, submitted by submitit."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nnlo_lib.batch.refusals import WaitingJobs
from nnlo_lib.core.errors import UserError
from nnlo_lib.core.logging_setup import get_logger
from nnlo_lib.executors.progress import RestartPolicy
from nnlo_lib.executors.submitit.job import TrialJob
from nnlo_lib.executors.submitit.slurm import SlurmTrialQueue, TransientRefusalError
from nnlo_lib.launch.stop_request import SignalRecorder
from nnlo_lib.search.study.storage import fold_task_run, read_config
from nnlo_lib.search.study.trial import FoldTask
from nnlo_lib.state.attempt_outcome import memory_for_next_attempt

logger = get_logger(__name__)

RESULT_POLL_INTERVAL_S = 0.2  # between two checks for results
_Due = tuple[float, Callable[[], None]]


class SubmititExecutor:
    """Trains fold tasks as Slurm jobs; continues jobs that an earlier driver submitted."""

    _clock = staticmethod(time.monotonic)

    def __init__(self, folder: Path, launcher: str, signals: SignalRecorder) -> None:
        self._folder, self._signals = folder, signals
        self._experiment = read_config(folder)
        self._name = f"nnlo-{self._experiment.name}"
        self._queue = SlurmTrialQueue(folder, self._name, launcher)
        self._jobs: dict[FoldTask, str] = {}
        self._restarts = RestartPolicy(folder)
        self._waiting, self._due = WaitingJobs(self._start, self._after), list[_Due]()
        self._checked_at, self._missed = self._clock(), set[str]()

    def start(self, fold_task: FoldTask) -> None:
        """Submit a job for a fold task, unless it already has one; later if the queue refuses the job for now."""
        self._waiting.submit(fold_task)

    def _start(self, fold_task: FoldTask) -> None:
        try:
            if found := self._queue.find(fold_task):
                logger.info(f"trial {fold_task.trial}, fold {fold_task.fold} continues as job {found}")
                self._restarts.record_start(fold_task, is_running=True)
                self._jobs[fold_task] = found
            else:
                self._submit(fold_task)
            self._waiting.accepted()
        except TransientRefusalError as error:
            delay = self._waiting.add_refused(fold_task)
            logger.warning(f"trial {fold_task.trial} waits {delay:g} s before it is submitted again: {error}")

    def _after(self, seconds: float, function: Callable[..., None], *arguments: Any) -> None:
        self._due.append((self._clock() + seconds, lambda: function(*arguments)))

    def start_due(self) -> None:
        """Start the waiting fold tasks whose delay has passed."""
        due = [call for at, call in self._due if self._clock() >= at]
        self._due = [each for each in self._due if each[1] not in due]
        for call in due:
            call()

    def wait(self) -> bool:
        """Wait for a result; return False after a stop signal. Raises UserError if a fold task cannot be trained."""
        while not self._signals.first:
            # Files are checked more often than the queue, which is queried every `poll_interval_s`.
            if ended := [each for each in self._jobs if each.result_path(self._folder).exists()]:
                for fold_task in ended:
                    del self._jobs[fold_task]
                self._after(0, self._waiting.job_ended)  # a limit of jobs may have room now
                return True
            try:
                self._check_jobs()
                self.start_due()
            except UserError:
                self._shut_down()
                raise
            time.sleep(RESULT_POLL_INTERVAL_S)
        return self._shut_down()

    def _shut_down(self) -> bool:
        if self._jobs:
            logger.info(
                f"Slurm jobs {' '.join(sorted(self._jobs.values()))} continue; to cancel all jobs of this search, run "
                f"`scancel --name={self._name}`"
            )
        return False

    def _check_jobs(self) -> None:
        """Resubmit the fold tasks of jobs that ended without a result.

        A job must be missing in two consecutive checks, because its result may become visible late.
        """
        if self._clock() - self._checked_at < self._queue.poll_interval_s:
            return
        ended = self._queue.ended(self._jobs.values())
        gone, self._missed = ended & self._missed, ended
        for fold_task in [fold_task for fold_task, job in self._jobs.items() if job in gone]:
            if not fold_task.result_path(self._folder).exists():
                self._resubmit(fold_task)
        self._checked_at = self._clock()

    def _resubmit(self, fold_task: FoldTask) -> None:
        job = self._jobs.pop(fold_task)
        log = self._queue.logs(fold_task) / f"{job}_0_log.out"
        self._restarts.record_exit(fold_task, log, self._queue.report(job))
        logger.info(
            f"job {job} ended without a result (see {log}); resubmitting trial {fold_task.trial}, fold {fold_task.fold}"
        )
        self.start(fold_task)

    def _submit(self, fold_task: FoldTask) -> None:
        run = fold_task_run(self._experiment, self._folder, fold_task)
        memory = memory_for_next_attempt(run.resources.mem_mb, self._restarts.attempts(fold_task))
        job = TrialJob(
            self._folder.absolute(), fold_task, self._queue.launcher, self._restarts.record_start(fold_task)
        )
        try:
            self._jobs[fold_task] = self._queue.submit(job, run, memory)
        except TransientRefusalError:
            self._restarts.withdraw_start(fold_task)
            raise
