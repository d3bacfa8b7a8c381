"""Slurm's queue, by submitit."""

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

SLURM_COMMAND_TIMEOUT_S = 60  # seconds for Slurm to answer
TRANSIENT_SLURM_ERROR = re.compile(r"timed out|[Uu]nable to contact|temporarily")
SUBMIT_RETRY_DELAYS_S = (5, 15, 30, 60, 60, 60)  # seconds
MAX_TIMEOUT_REQUEUES = 10**9  # so often may a job run out of time: the launcher judges by progress
SLURM_LAUNCHER = "srun --mpi=pmi2 --kill-on-bad-exit=1"  # as profiles/slurm/config.yaml explains


def has_slurm() -> bool:
    """Tell whether this machine belongs to a Slurm, be its controller up or not."""
    told = _run_slurm_command("scontrol", "ping") if shutil.which("sbatch") else None
    return told is not None and "Slurmctld" in told.stdout


class SlurmQueue:
    """Jobs of Slurm, all of one name; the comment of each is the result that it is to bring."""

    poll_interval_s = 10.0

    def __init__(self, search: Path, name: str, launcher: str) -> None:
        self._search, self._name = search, name
        self.launcher = SLURM_LAUNCHER if launcher == "mpiexec" else launcher  # which hears no signals there

    def submit(self, job: TrialJob, run: Run, memory: int) -> JobRecord:
        """Queue a job that asks for what its training wants; Slurm may be away for some minutes."""
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

    def find(self, leaf: FoldTask) -> JobRecord | None:
        """Return the job of a leaf by what is on disk, or by its comment if its driver died too early to write."""
        queue, written = self._jobs(), JobRecord.read(self._search, leaf)
        if queue is None or (written and written.job in queue):
            return written
        return next(
            (JobRecord("slurm", job) for job, mark in queue.items() if mark == self._mark(leaf)), None
        )

    def ended(self, tickets: Iterable[JobRecord]) -> set[JobRecord]:
        """Return those that are not in the queue."""
        queue = self._jobs()
        return set() if queue is None else {ticket for ticket in tickets if ticket.job not in queue}

    def was_cancelled(self, ticket: JobRecord) -> bool:
        """Ask the controller, which remembers for some minutes, and the accounting, which a site may lack."""
        told = _run_slurm_command(
            "squeue", "--noheader", "--states=all", f"--jobs={ticket.job}", "--format=%T"
        )
        return (told is not None and "CANCELLED" in told.stdout) or BatchJob(
            "slurm", ticket.job
        ).was_cancelled()

    def shut_down(self, tickets: Iterable[JobRecord]) -> str:
        """Let jobs go on."""
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
        """Return the comments of this user's jobs that wait or run, by number; None if Slurm does not answer."""
        told = _run_slurm_command("squeue", "--me", "--noheader", "--format=%A|%k")
        if told is None or told.returncode:
            return None
        return dict(line.strip().split("|", 1) for line in told.stdout.splitlines() if "|" in line)

    def _mark(self, leaf: FoldTask) -> str:
        return str(leaf.result_path(self._search).absolute())


def request(run: Run, memory: int) -> dict[str, Any]:
    """Return what a job of Slurm asks for, in submitit's words; no srun of submitit's is around that of the ranks."""
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
    """Hide the job that this process may be in, of which sbatch would hand all variables on."""
    hidden = {k: v for k, v in os.environ.items() if k.startswith(("SLURM_", "SRUN_")) and k != "SLURM_CONF"}
    for key in hidden:
        del os.environ[key]
    try:
        yield
    finally:
        os.environ.update(hidden)


def _run_slurm_command(*command: str) -> "subprocess.CompletedProcess[str] | None":
    """Run a command of Slurm's; None if it is not there, or does not end."""
    try:
        return subprocess.run(
            command, capture_output=True, text=True, timeout=SLURM_COMMAND_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
