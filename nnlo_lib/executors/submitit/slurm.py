"""Slurm jobs of fold tasks: requested resources, submission by submitit, refusals, records, and ends."""

import json
import os
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

from submitit import SlurmExecutor

from nnlo_lib.batch.job_states import JobReport, QueueReport
from nnlo_lib.batch.pending_reasons import PendingExplainer
from nnlo_lib.batch.refusals import RefusalKind, classify_refusal
from nnlo_lib.batch.scheduler_query import Command, run_command
from nnlo_lib.batch.slurm_queue import SlurmQueue, blamed_variable, memory_per_node, submitted_number
from nnlo_lib.batch.surroundings import leave_surrounding_job, sentence_about_variables
from nnlo_lib.cluster.job_watch import FIRST_LOOK_S, JobWatch, StatusFile
from nnlo_lib.config import Run
from nnlo_lib.config.experiment import RunResources
from nnlo_lib.config.paths import SearchPaths
from nnlo_lib.core.atomic_file import atomic_write
from nnlo_lib.core.errors import UserError
from nnlo_lib.core.logging_setup import get_logger
from nnlo_lib.executors.submitit.job import TrialJob
from nnlo_lib.search.study.trial import FoldTask

logger = get_logger(__name__)

# profiles/slurm/config.yaml gives the reasons for the options.
SLURM_LAUNCHER = "srun --mpi=pmi2 --kill-on-bad-exit=1"
# Jobs of submitit write no status file; the executor itself looks for results.
NO_STATUS_FILE = StatusFile(Path(os.devnull))


class TransientRefusalError(Exception):
    """The queue does not answer or has reached a limit; the same request may be accepted later."""


def refuse_without_slurm() -> None:
    """Raise UserError if this machine belongs to no Slurm cluster; a controller that is down is no reason."""
    answer = run_command("scontrol", "ping") if shutil.which("sbatch") else None
    if answer is None or "Slurmctld" not in answer.stdout:
        raise UserError(
            "--executor submitit: this machine has no Slurm (`scontrol ping` names no controller); "
            "use --executor local, which trains in processes of this machine"
        )
    if sentence := sentence_about_variables(os.environ):
        logger.warning(sentence)


class SlurmTrialQueue:
    """Slurm jobs with a common name; the comment of each job is the path of its result file, and its logs have a folder of their own.

    The number of each job is recorded beside the result file, where the next driver finds the job.
    Slurm is asked about all jobs in one call, at first every 10 s and later every minute. A query that fails changes nothing.
    """

    poll_interval_s = FIRST_LOOK_S

    def __init__(
        self,
        search: Path,
        name: str,
        launcher: str,
        run: Command = run_command,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._search, self._name, self._run = search, name, run
        # Slurm's signals do not reach mpiexec.
        self.launcher = SLURM_LAUNCHER if launcher == "mpiexec" else launcher
        self._slurm = SlurmQueue(run)
        self._watch = JobWatch(self._slurm, clock, logger.warning)
        self._pending = PendingExplainer(logger.warning, clock)
        self._ends: dict[str, JobReport] = {}
        self._unclear: set[FoldTask] = set()  # their last submission may have succeeded

    def submit(self, job: TrialJob, run: Run, memory: int) -> str:
        """Submit a job that requests the resources of a run and `memory` MB; return its number.

        Raises:
            UserError: if Slurm refuses the job.
            TransientRefusalError: if Slurm may accept the job later.
        """
        self._cancel_unclear(job.task)
        try:
            return self._record(job.task, self._submitted(job, run, memory))
        except RuntimeError as error:
            refusal = classify_refusal(str(error))
            if refusal.may_be_submitted or refusal.kind is RefusalKind.UNKNOWN:
                self._unclear.add(job.task)
                self._cancel_unclear(job.task)
            if refusal.kind is RefusalKind.TRANSIENT:
                raise TransientRefusalError(refusal.sentence) from error
            sentence = f"{refusal.sentence}; check `resources` in the experiment"
            if script := max(
                SearchPaths(self._search).submitit.rglob("submission_file_*.sh"),
                key=os.path.getmtime,
                default=None,
            ):
                refused = CompletedProcess([], 1, "", str(error))
                sentence = (
                    blamed_variable(refused, self._run, "sbatch", "--test-only", str(script)) or sentence
                )
            raise UserError(f"Slurm refused the job of trial {job.task.trial}: {sentence}") from error

    def find(self, fold_task: FoldTask) -> str | None:
        """Return the number of a fold task's job by its record, or by its comment or log if the driver died too early.

        Return None if no job waits or runs. Raises TransientRefusalError if Slurm does not respond.
        """
        live, recorded = self._live(fold_task), self._recorded(fold_task)
        if not live or recorded in live:
            return recorded if live else None
        return self._record(fold_task, live[-1])

    def ended(self, jobs: Iterable[str]) -> set[str]:
        """Return the jobs that have ended or were lost; a canceled rest of a lost job does not train beside its successor."""
        numbers = set(jobs)
        reports = self._watch.judge(dict.fromkeys(numbers - self._ends.keys(), NO_STATUS_FILE))
        self._pending.explain(reports, dict.fromkeys(reports, self._name))
        ends = {number: report for number, report in reports.items() if not report.fate.is_active}
        self._ends |= {number: report for number, report in ends.items() if self._slurm.cancel(number)}
        return numbers & self._ends.keys()

    def logs(self, fold_task: FoldTask) -> Path:
        """Return the folder for files and logs of the jobs of a fold task; a job is also recognized by it."""
        name = f"{fold_task.trial:04d}-fold-{fold_task.fold}-epochs-{fold_task.epochs}"
        return (SearchPaths(self._search).submitit / name).absolute()

    def report(self, job: str) -> JobReport:
        """Return what the controller or the accounting reported of a job that has ended."""
        return self._ends[job]

    def _submitted(self, job: TrialJob, run: Run, memory: int) -> str:
        executor = _Submission(
            self.logs(job.task), lambda: next(reversed(self._unrecorded(job.task)), None),
            # `exec` replaces the batch shell, which would receive Slurm's signals instead of the launcher.
            python=f"exec {shlex.quote(sys.executable)}",
        )  # fmt: skip
        executor.update_parameters(
            **request(run, memory), job_name=self._name, comment=self._comment_of(job.task)
        )
        with _outside_any_job():
            return executor.submit(job).job_id

    def _live(self, fold_task: FoldTask) -> list[str]:
        """Return the numbers of the jobs of a fold task that wait or run, the newest one last.

        Raises TransientRefusalError if Slurm does not respond.
        """
        found = self._slurm.find_submitted("", self._comment_of(fold_task), self.logs(fold_task))
        numbers = {*(found or ()), self._recorded(fold_task)} - {None}
        report = self._slurm.look(filter(None, numbers)) if numbers else QueueReport()
        if found is None or not report.is_complete:
            raise TransientRefusalError("Slurm does not respond")
        return sorted((number for number, job in report.jobs.items() if job.fate.is_active), key=int)

    def _unrecorded(self, fold_task: FoldTask) -> list[str]:
        recorded = self._recorded(fold_task)
        return [number for number in self._live(fold_task) if number != recorded]

    def _cancel_unclear(self, fold_task: FoldTask) -> None:
        """Cancel a job that Slurm accepted although the answer was lost: submitit has not written what the job reads.

        Raises TransientRefusalError if Slurm does not respond.
        """
        if fold_task not in self._unclear:
            return
        # Once each: a canceled job stays in the queue while its processes end.
        for number in self._unrecorded(fold_task):
            if not self._slurm.cancel(number):
                raise TransientRefusalError(f"Slurm does not cancel job {number}, whose submission failed")
            logger.warning(
                f"job {number} of trial {fold_task.trial} was accepted without an answer; it is canceled"
            )
        self._unclear.discard(fold_task)

    def _record(self, fold_task: FoldTask, job: str) -> str:
        with atomic_write(self._record_path(fold_task)) as part:
            part.write_text(json.dumps({"cluster": "slurm", "job": job}))
        return job

    def _recorded(self, fold_task: FoldTask) -> str | None:
        """Return the number of the last job of a fold task, or None if it had no job."""
        try:
            return str(json.loads(self._record_path(fold_task).read_text())["job"])
        except FileNotFoundError:
            return None

    def _record_path(self, fold_task: FoldTask) -> Path:
        return SearchPaths(self._search).job_record(fold_task.trial, fold_task.fold, fold_task.epochs)

    def _comment_of(self, fold_task: FoldTask) -> str:
        return str(fold_task.result_path(self._search).absolute())


class _Submission(SlurmExecutor):
    """Submission of submitit that cannot take a number of the site's notices for the job's number.

    `find` returns the number of the submitted job, if sbatch printed something else, or None.
    """

    def __init__(self, folder: Path, find: Callable[[], str | None], **options: Any) -> None:
        super().__init__(folder, **options)
        self._find = find

    def _make_submission_command(self, submission_file_path: Path) -> list[str]:
        return ["sbatch", "--parsable", str(submission_file_path)]

    # A static method in submitit, called on the instance.
    def _get_job_id_from_submission_command(self, string: bytes | str) -> str:  # type: ignore[override]
        try:
            return submitted_number(string.decode() if isinstance(string, bytes) else string)
        except ValueError as error:
            if number := self._find():
                return number
            raise RuntimeError(str(error)) from error


def request(run: Run, memory: int) -> dict[str, Any]:
    """Return the resources of a Slurm job as parameters of submitit.

    Submitit adds no srun of its own, because the launcher starts the ranks with srun.
    """
    resources = RunResources(run)
    gpus = {"gpus": resources.gpus} if resources.gpus else {}
    return {
        "time": resources.runtime_min, "nodes": resources.nodes,
        "cpus_per_task": resources.threads_per_process, "stderr_to_stdout": True, "mem": f"{memory_per_node(memory, resources.nodes)}M",
        "partition": run.resources.partition, "account": run.resources.account, "use_srun": False,
        "additional_parameters": {"ntasks": resources.processes, "requeue": True, **gpus},
    }  # fmt: skip


@contextmanager
def _outside_any_job() -> Iterator[None]:
    """Hide the variables of the job that contains this process, which sbatch would pass on, and misleading ones."""
    hidden = leave_surrounding_job()
    try:
        yield
    finally:
        os.environ.update(hidden)
