"""Executor that trains fold tasks as submitit jobs, in Slurm or as processes of a machine without Slurm."""

import time
from pathlib import Path

from nnlo_lib.config import Experiment
from nnlo_lib.core.errors import UserError
from nnlo_lib.core.logging_setup import get_logger
from nnlo_lib.executors.gpu_slots import warn_if_gpus_are_few
from nnlo_lib.executors.restarts import RestartPolicy
from nnlo_lib.executors.submitit.deferred_starts import DeferredStarts, TransientRefusalError
from nnlo_lib.executors.submitit.job import TrialJob
from nnlo_lib.executors.submitit.job_record import JobRecord
from nnlo_lib.executors.submitit.local_processes import LocalProcessQueue
from nnlo_lib.executors.submitit.queue import JobQueue, log_of
from nnlo_lib.executors.submitit.slurm import SlurmTrialQueue, has_slurm
from nnlo_lib.launch.signals import SignalRecorder
from nnlo_lib.search.study.storage import read_config
from nnlo_lib.search.study.trial import FoldTask
from nnlo_lib.search.study.trial_run import fold_task_run
from nnlo_lib.state.retry_policy import memory_for_next_attempt

logger = get_logger(__name__)

RESULT_POLL_INTERVAL_S = 0.2  # between two checks for results


class SubmititExecutor:
    """Trains fold tasks as jobs of a queue; continues jobs that an earlier driver submitted."""

    def __init__(self, folder: Path, launcher: str, signals: SignalRecorder) -> None:
        self._folder, self._signals = folder, signals
        self._experiment = read_config(folder)
        self._queue = _build_queue(folder, self._experiment, launcher)
        self._jobs: dict[FoldTask, JobRecord] = {}
        self._restarts = RestartPolicy(folder)
        self._deferred = DeferredStarts(self._start)
        self._checked_at, self._missed = time.monotonic(), set[JobRecord]()

    def start(self, fold_task: FoldTask) -> None:
        """Submit a job for a fold task, unless it already has one; later if the queue refuses the job for now."""
        self._deferred.start(fold_task)

    def _start(self, fold_task: FoldTask) -> None:
        if found := self._queue.find(fold_task):
            logger.info(f"trial {fold_task.trial}, fold {fold_task.fold} continues as job {found.job}")
            self._restarts.record_start(fold_task, is_running=True)
            self._record_job(fold_task, found)
        else:
            self._submit(fold_task)

    def wait(self) -> bool:
        """Wait for a result; return False after a stop signal.

        Raises:
            UserError: if a fold task cannot be trained.
        """
        while not self._signals.first:
            # Files are checked more often than the queue, which is queried every `poll_interval_s`.
            if ended := [
                fold_task for fold_task in self._jobs if fold_task.result_path(self._folder).exists()
            ]:
                for fold_task in ended:
                    del self._jobs[fold_task]
                return True
            try:
                self._check_jobs()
                self._deferred.start_due()
            except UserError:
                self._shut_down()
                raise
            time.sleep(RESULT_POLL_INTERVAL_S)
        return self._shut_down()

    def _shut_down(self) -> bool:
        if self._jobs:
            logger.info(self._queue.shut_down(self._jobs.values()))
        return False

    def _check_jobs(self) -> None:
        """Resubmit the fold tasks of jobs that ended without a result.

        A job must be missing in two consecutive checks, because its result may become visible late.
        """
        if time.monotonic() - self._checked_at < self._queue.poll_interval_s:
            return
        ended = self._queue.ended(self._jobs.values())
        gone, self._missed = ended & self._missed, ended
        for fold_task in [fold_task for fold_task, job_record in self._jobs.items() if job_record in gone]:
            if not fold_task.result_path(self._folder).exists():
                self._resubmit(fold_task)
        self._checked_at = time.monotonic()

    def _resubmit(self, fold_task: FoldTask) -> None:
        job_record = self._jobs.pop(fold_task)
        # The job itself records a cancellation, which Slurm may have forgotten.
        if self._queue.was_cancelled(job_record) or self._restarts.is_canceled(fold_task, job_record.job):
            raise UserError(
                f"job {job_record.job} (trial {fold_task.trial}, fold {fold_task.fold}) was canceled, therefore the search "
                "stops; run the same command again to resubmit the job"
            )
        log = log_of(self._folder, job_record)
        if not self._queue.was_preempted(job_record):
            self._restarts.record_exit(fold_task, log)
        logger.info(
            f"job {job_record.job} ended without a result (see {log}); resubmitting trial {fold_task.trial}, "
            f"fold {fold_task.fold}"
        )
        self._deferred.start(fold_task)

    def _submit(self, fold_task: FoldTask) -> None:
        run = fold_task_run(self._experiment, self._folder, fold_task)
        memory = memory_for_next_attempt(run.resources.mem_mb, self._restarts.attempts(fold_task))
        job = TrialJob(
            self._folder.absolute(), fold_task, self._queue.launcher, self._restarts.record_start(fold_task)
        )
        try:
            submitted = self._queue.submit(job, run, memory)
        except TransientRefusalError:
            self._restarts.withdraw_start(fold_task)
            raise
        self._record_job(fold_task, submitted)

    def _record_job(self, fold_task: FoldTask, job_record: JobRecord) -> None:
        job_record.write(self._folder, fold_task)
        self._jobs[fold_task] = job_record


def _build_queue(folder: Path, experiment: Experiment, launcher: str) -> JobQueue:
    if has_slurm():
        return SlurmTrialQueue(folder, f"nnlo-{experiment.name}", launcher)
    warn_if_gpus_are_few(experiment)
    logger.info("Slurm is not available; submitit runs the jobs as processes of this machine")
    return LocalProcessQueue(folder, launcher)
