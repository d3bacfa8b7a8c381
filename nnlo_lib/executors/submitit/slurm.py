"""Queue of Slurm jobs, submitted by submitit."""

import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from submitit import AutoExecutor

from nnlo_lib.config import Run
from nnlo_lib.config.paths import SearchPaths
from nnlo_lib.config.resources import RunResources
from nnlo_lib.core.batch_system import BatchJob
from nnlo_lib.core.errors import UserError
from nnlo_lib.core.logging_setup import get_logger
from nnlo_lib.executors.submitit.job import TrialJob
from nnlo_lib.executors.submitit.job_record import JobRecord
from nnlo_lib.search.study.trial import FoldTask

logger = get_logger(__name__)

SLURM_COMMAND_TIMEOUT_S = 60  # for an answer of a Slurm command
TRANSIENT_SLURM_ERROR = re.compile(r"timed out|[Uu]nable to contact|temporarily")
SUBMIT_RETRY_DELAYS_S = (5, 15, 30, 60, 60, 60)  # the controller may be down for some minutes
MAX_TIMEOUT_REQUEUES = 10**9  # practically no limit: the launcher judges a requeue by progress
SLURM_LAUNCHER = "srun --mpi=pmi2 --kill-on-bad-exit=1"  # as profiles/slurm/config.yaml explains


def has_slurm() -> bool:
    """Return True if this machine belongs to a Slurm cluster, even if the controller is down."""
    told = _run_slurm_command("scontrol", "ping") if shutil.which("sbatch") else None
    return told is not None and "Slurmctld" in told.stdout


class SlurmQueue:
    """Slurm jobs with a common name; the comment of each job is the path of its result file."""

    poll_interval_s = 10.0

    def __init__(self, search: Path, name: str, launcher: str) -> None:
        self._search, self._name = search, name
        self.launcher = SLURM_LAUNCHER if launcher == "mpiexec" else launcher  # it gets no signals in Slurm

    def submit(self, job: TrialJob, run: Run, memory: int) -> JobRecord:
        """Submit a job with the resources of its run; retry for some minutes if Slurm does not answer."""
        for pause in SUBMIT_RETRY_DELAYS_S:
            try:
                return JobRecord("slurm", self._submitted(job, run, memory))
            except RuntimeError as error:
                if not TRANSIENT_SLURM_ERROR.search(str(error)):
                    raise UserError(f"Slurm does not take trial {job.task.trial}: {error}") from error
            logger.warning(f"Slurm does not answer; trying again in {pause} seconds")
            time.sleep(pause)
            if found := self.find(job.task):
                return found
        raise UserError("Slurm has not answered for minutes; the same command goes on once it does")

    def find(self, fold_task: FoldTask) -> JobRecord | None:
        """Return the job of a fold task by its record, or by its comment if the driver died too early."""
        queue, written = self._jobs(), JobRecord.read(self._search, fold_task)
        if queue is None or (written and written.job in queue):
            return written
        return next(
            (JobRecord("slurm", job) for job, mark in queue.items() if mark == self._mark(fold_task)), None
        )

    def ended(self, tickets: Iterable[JobRecord]) -> set[JobRecord]:
        """Return the jobs that are not in the queue; an empty set if Slurm does not answer."""
        queue = self._jobs()
        return set() if queue is None else {ticket for ticket in tickets if ticket.job not in queue}

    def was_cancelled(self, ticket: JobRecord) -> bool:
        """Return True if the controller or the accounting knows that the job was cancelled.

        Both are asked: the controller forgets jobs after some minutes, and some sites have no accounting.
        """
        told = _run_slurm_command(
            "squeue", "--noheader", "--states=all", f"--jobs={ticket.job}", "--format=%T"
        )
        return (told is not None and "CANCELLED" in told.stdout) or BatchJob(
            "slurm", ticket.job
        ).was_cancelled()

    def shut_down(self, tickets: Iterable[JobRecord]) -> str:
        """Let the jobs continue; return a message with their numbers."""
        jobs = " ".join(sorted(ticket.job for ticket in tickets))
        return f"Slurm goes on with its jobs {jobs}; `scancel --name={self._name}` ends all of this search"

    def _submitted(self, job: TrialJob, run: Run, memory: int) -> str:
        executor = AutoExecutor(
            SearchPaths(self._search).submitit, "slurm", slurm_max_num_timeout=MAX_TIMEOUT_REQUEUES,
            slurm_python=f"exec {shlex.quote(sys.executable)}",
        )  # fmt: skip
        executor.update_parameters(
            **request(run, memory), name=self._name, slurm_comment=self._mark(job.task)
        )
        with _outside_any_job():
            return executor.submit(job).job_id

    def _jobs(self) -> dict[str, str] | None:
        """Return the comments of this user's waiting and running jobs, by number; None without an answer."""
        told = _run_slurm_command("squeue", "--me", "--noheader", "--format=%A|%k")
        if told is None or told.returncode:
            return None
        return dict(line.strip().split("|", 1) for line in told.stdout.splitlines() if "|" in line)

    def _mark(self, fold_task: FoldTask) -> str:
        return str(fold_task.result_path(self._search).absolute())


def request(run: Run, memory: int) -> dict[str, Any]:
    """Return the resources of a Slurm job as parameters of submitit.

    Submitit adds no srun of its own, because the launcher starts the ranks by srun.
    """
    resources = RunResources(run)
    gpus = {"gpus": resources.gpus} if resources.gpus else {}
    return {
        "timeout_min": resources.runtime_min, "nodes": resources.nodes,
        "cpus_per_task": resources.threads_per_process, "stderr_to_stdout": True, "slurm_mem": f"{memory}M",
        "slurm_partition": run.resources.partition, "slurm_account": run.resources.account, "slurm_use_srun": False,
        "slurm_additional_parameters": {"ntasks": resources.processes, "requeue": True, **gpus},
    }  # fmt: skip


@contextmanager
def _outside_any_job() -> Iterator[None]:
    """Hide the variables of the job that contains this process, because sbatch would pass them on."""
    hidden = {k: v for k, v in os.environ.items() if k.startswith(("SLURM_", "SRUN_")) and k != "SLURM_CONF"}
    for key in hidden:
        del os.environ[key]
    try:
        yield
    finally:
        os.environ.update(hidden)


def _run_slurm_command(*command: str) -> "subprocess.CompletedProcess[str] | None":
    """Run a Slurm command; return None if it is not installed or does not end in time."""
    try:
        return subprocess.run(
            command, capture_output=True, text=True, timeout=SLURM_COMMAND_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
