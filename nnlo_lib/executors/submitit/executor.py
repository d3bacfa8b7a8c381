"""Executor that trains fold tasks as Slurm jobs, submitted by submitit.

The comment of each job is the path of its result file, and its logs have a folder of their own. The number of the job is recorded
beside the result file, where the next driver finds the job.
"""

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

from nnlo_lib.batch.job_states import JobReport
from nnlo_lib.batch.pending_reasons import PendingExplainer
from nnlo_lib.batch.scheduler_query import Command, run_command
from nnlo_lib.batch.slurm_queue import SlurmQueue, blamed_variable
from nnlo_lib.batch.submission_line import SubmissionLine
from nnlo_lib.cluster.job_watch import FIRST_LOOK_S, JobWatch, StatusFile
from nnlo_lib.config.paths import SearchPaths
from nnlo_lib.core.atomic_file import atomic_write
from nnlo_lib.core.errors import UserError
from nnlo_lib.core.logging_setup import get_logger
from nnlo_lib.executors.progress import RestartPolicy
from nnlo_lib.executors.submitit.job import TrialJob
from nnlo_lib.executors.submitit.slurm import SLURM_LAUNCHER, TrialSubmission, request
from nnlo_lib.launch.stop_request import SignalRecorder
from nnlo_lib.search.study.storage import fold_task_run, read_config
from nnlo_lib.search.study.trial import FoldTask
from nnlo_lib.state.attempt_outcome import memory_for_next_attempt

logger = get_logger(__name__)

RESULT_POLL_INTERVAL_S = 0.2  # between two checks for results
# Jobs of submitit write no status file; the executor itself looks for results.
NO_STATUS_FILE = StatusFile(Path(os.devnull))


class SubmititExecutor(SubmissionLine):
    """Trains fold tasks as Slurm jobs; continues jobs that an earlier driver submitted.

    Slurm is asked about all jobs in one call, at first every 10 s and later every minute. A query that fails changes nothing.
    """

    _clock = staticmethod(time.monotonic)

    def __init__(
        self, folder: Path, launcher: str, signals: SignalRecorder, run: Command = run_command
    ) -> None:
        self._folder, self._signals, self._run = folder, signals, run
        # Slurm's signals do not reach mpiexec.
        self._launcher = SLURM_LAUNCHER if launcher == "mpiexec" else launcher
        self._experiment = read_config(folder)
        self._name = f"nnlo-{self._experiment.name}"
        self._form_line(SlurmQueue(run))
        self._watch = JobWatch(self._queue, self._clock, self._say)
        self._pending = PendingExplainer(self._say, self._clock)
        self._restarts = RestartPolicy(folder)
        self._jobs: dict[FoldTask, str] = {}
        self._ends: dict[str, JobReport] = {}
        self._due: list[tuple[float, Callable[[], None]]] = []
        self._checked_at = self._clock()

    def start(self, fold_task: FoldTask) -> None:
        """Submit a job for a fold task, unless it already has one; later if the queue refuses the job for now."""
        self._submit_in_turn(fold_task)

    def wait(self) -> bool:
        """Wait for a result; return False after a stop signal. Raises UserError if a fold task cannot be trained."""
        while not self._signals.first:
            # Files are checked more often than the queue.
            if ended := [each for each in self._jobs if each.result_path(self._folder).exists()]:
                for fold_task in ended:
                    del self._jobs[fold_task]
                self._after(0, self._submit_after_end)  # a limit of jobs may have room now
                return True
            try:
                self._check_jobs()
                self.start_due()
            except UserError:
                self._shut_down()
                raise
            time.sleep(RESULT_POLL_INTERVAL_S)
        return self._shut_down()

    def start_due(self) -> None:
        """Start the waiting fold tasks whose delay has passed."""
        due = [call for at, call in self._due if self._clock() >= at]
        self._due = [each for each in self._due if each[1] not in due]
        for call in due:
            call()

    def logs(self, fold_task: FoldTask) -> Path:
        """Return the folder for files and logs of the jobs of a fold task; a job is also recognized by it."""
        name = f"{fold_task.trial:04d}-fold-{fold_task.fold}-epochs-{fold_task.epochs}"
        return (SearchPaths(self._folder).submitit / name).absolute()

    def _shut_down(self) -> bool:
        if self._jobs:
            logger.info(
                f"Slurm jobs {' '.join(sorted(self._jobs.values()))} continue; to cancel all jobs of this search, run "
                f"`scancel --name={self._name}`"
            )
        return False

    def _check_jobs(self) -> None:
        """Submit the fold tasks of jobs that ended without a result again, one check later: a result may become visible late."""
        if self._clock() - self._checked_at < FIRST_LOOK_S:
            return
        self._checked_at = self._clock()
        ended_before = [(task, job) for task, job in self._jobs.items() if job in self._ends]
        watched = set(self._jobs.values()) - self._ends.keys()
        reports = self._watch.judge(dict.fromkeys(watched, NO_STATUS_FILE))
        self._pending.explain(reports, dict.fromkeys(reports, self._name))
        for job, report in reports.items():
            # The rest of a lost job must not train beside its successor.
            if not report.fate.is_active and self._queue.cancel(job):
                self._ends[job] = report
        for fold_task, job in ended_before:
            if not fold_task.result_path(self._folder).exists():
                del self._jobs[fold_task]
                log = self.logs(fold_task) / f"{job}_0_log.out"
                self._restarts.record_exit(fold_task, log, self._ends[job])
                logger.info(
                    f"job {job} ended without a result (see {log}); resubmitting {self._name_of(fold_task)}"
                )
                self.start(fold_task)

    def _send(self, fold_task: FoldTask) -> None:
        run = fold_task_run(self._experiment, self._folder, fold_task)
        memory = memory_for_next_attempt(run.resources.mem_mb, self._restarts.attempts(fold_task))
        number = self._restarts.record_start(fold_task)
        job = TrialJob(self._folder.absolute(), fold_task, self._launcher, number)
        parameters = request(run, memory) | {"job_name": self._name, "comment": self._comment_of(fold_task)}
        try:
            submission = TrialSubmission(self.logs(fold_task), **parameters)
            self._watch_job(fold_task, submission.send(job))
            self._accepted()
        except RuntimeError as error:
            if refusal := self._refused(fold_task, str(error)):
                # The last script: without one, submitit has not come as far as sbatch.
                scripts = self.logs(fold_task).glob("*submission_file_*.sh")
                script = max(scripts, key=os.path.getmtime, default=None)
                refused = CompletedProcess([], 1, "", str(error))
                blamed = script and blamed_variable(refused, self._run, "sbatch", "--test-only", str(script))
                cause = blamed or f"{refusal.sentence}; check `resources` in the experiment"
                raise UserError(f"Slurm refused the job of trial {fold_task.trial}: {cause}") from error

    def _recorded(self, fold_task: FoldTask) -> list[str] | None:
        """Return the recorded job last; before it, those by comment or log, if a driver died before it recorded one."""
        found, recorded = self._unrecorded(fold_task), self._record_of(fold_task)
        return found if found is None or recorded is None else [*found, recorded]

    def _unrecorded(self, fold_task: FoldTask) -> list[str] | None:
        found = self._queue.find_submitted("", self._comment_of(fold_task), self.logs(fold_task))
        recorded = self._record_of(fold_task)
        return found and sorted((each for each in found if each != recorded), key=int)

    def _adopt(self, fold_task: FoldTask, number: str) -> None:
        logger.info(f"{self._name_of(fold_task)} continues as job {number}")
        if fold_task not in self._submissions:
            self._restarts.record_start(fold_task, is_running=True)
        TrialSubmission.complete(self.logs(fold_task), number)
        self._watch_job(fold_task, number)

    def _watch_job(self, fold_task: FoldTask, job: str) -> None:
        with atomic_write(self._record_path(fold_task)) as part:
            part.write_text(json.dumps({"cluster": "slurm", "job": job}))
        self._jobs[fold_task] = job

    def _record_of(self, fold_task: FoldTask) -> str | None:
        """Return the number of the last job of a fold task, or None if it had no job."""
        try:
            return str(json.loads(self._record_path(fold_task).read_text())["job"])
        except FileNotFoundError:
            return None

    def _record_path(self, fold_task: FoldTask) -> Path:
        return SearchPaths(self._folder).job_record(fold_task.trial, fold_task.fold, fold_task.epochs)

    def _comment_of(self, fold_task: FoldTask) -> str:
        return str(fold_task.result_path(self._folder).absolute())

    def _name_of(self, fold_task: FoldTask) -> str:
        return f"trial {fold_task.trial}, fold {fold_task.fold}"

    def _after(self, seconds: float, function: Callable[..., None], *arguments: Any) -> None:
        self._due.append((self._clock() + seconds, lambda: function(*arguments)))

    def _say(self, line: str) -> None:
        logger.warning(line)
