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

SLURM_COMMAND_TIMEOUT_S = 60  # per Slurm command
TRANSIENT_SLURM_ERROR = re.compile(r"timed out|[Uu]nable to contact|temporarily")
SUBMIT_RETRY_DELAYS_S = (5, 15, 30, 60, 60, 60)  # the controller may be down for some minutes
MAX_TIMEOUT_REQUEUES = (
    10**9
)  # practically no limit: the launcher stops requeueing if an attempt makes no progress
# profiles/slurm/config.yaml gives the reasons for the options.
SLURM_LAUNCHER = "srun --mpi=pmi2 --kill-on-bad-exit=1"


def has_slurm() -> bool:
    """Return True if this machine belongs to a Slurm cluster, even if the controller is down."""
    answer = _run_slurm_command("scontrol", "ping") if shutil.which("sbatch") else None
    return answer is not None and "Slurmctld" in answer.stdout


class SlurmQueue:
    """Slurm jobs with a common name; the comment of each job is the path of its result file.

    `submit` retries for some minutes if Slurm does not respond.
    """

    poll_interval_s = 10.0

    def __init__(self, search: Path, name: str, launcher: str) -> None:
        self._search, self._name = search, name
        # Slurm's signals do not reach mpiexec.
        self.launcher = SLURM_LAUNCHER if launcher == "mpiexec" else launcher

    def submit(self, job: TrialJob, run: Run, memory: int) -> JobRecord:
        for pause in SUBMIT_RETRY_DELAYS_S:
            try:
                return JobRecord("slurm", self._submitted(job, run, memory))
            except RuntimeError as error:
                if not TRANSIENT_SLURM_ERROR.search(str(error)):
                    raise UserError(
                        f"Slurm refused the job of trial {job.task.trial}: {error}; check `resources` in the experiment"
                    ) from error
            logger.warning(f"Slurm does not respond; submitting trial {job.task.trial} again in {pause} s")
            time.sleep(pause)
            # A submission that timed out may have been accepted.
            if found := self.find(job.task):
                return found
        raise UserError(
            f"Slurm did not respond to {len(SUBMIT_RETRY_DELAYS_S)} submissions of trial {job.task.trial}; "
            "run the same command again to resume as soon as `scontrol ping` reports that the controller is up"
        )

    def find(self, fold_task: FoldTask) -> JobRecord | None:
        """Return the job of a fold task by its record, or by its comment if the driver died too early."""
        queue, written = self._jobs(), JobRecord.read(self._search, fold_task)
        if queue is None or (written and written.job in queue):
            return written
        return next(
            (
                JobRecord("slurm", job)
                for job, comment in queue.items()
                if comment == self._comment_of(fold_task)
            ),
            None,
        )

    def ended(self, job_records: Iterable[JobRecord]) -> set[JobRecord]:
        """Return the jobs that are not in the queue; an empty set if Slurm does not respond."""
        queue = self._jobs()
        return (
            set()
            if queue is None
            else {job_record for job_record in job_records if job_record.job not in queue}
        )

    def was_cancelled(self, job_record: JobRecord) -> bool:
        """Return True if the controller or the accounting reports that the job was canceled.

        Both are queried: the controller drops jobs after some minutes, and some sites have no accounting.
        """
        answer = _run_slurm_command(
            "squeue", "--noheader", "--states=all", f"--jobs={job_record.job}", "--format=%T"
        )
        return (answer is not None and "CANCELLED" in answer.stdout) or BatchJob(
            "slurm", job_record.job
        ).was_cancelled()

    def shut_down(self, job_records: Iterable[JobRecord]) -> str:
        """Let the jobs continue; return a message with their numbers."""
        jobs = " ".join(sorted(job_record.job for job_record in job_records))
        return f"Slurm jobs {jobs} continue; to cancel all jobs of this search, run `scancel --name={self._name}`"

    def _submitted(self, job: TrialJob, run: Run, memory: int) -> str:
        executor = AutoExecutor(
            SearchPaths(self._search).submitit, "slurm", slurm_max_num_timeout=MAX_TIMEOUT_REQUEUES,
            # `exec` replaces the batch shell, which would receive Slurm's signals instead of the launcher.
            slurm_python=f"exec {shlex.quote(sys.executable)}",
        )  # fmt: skip
        executor.update_parameters(
            **request(run, memory), name=self._name, slurm_comment=self._comment_of(job.task)
        )
        with _outside_any_job():
            return executor.submit(job).job_id

    def _jobs(self) -> dict[str, str] | None:
        """Return the comments of this user's waiting and running jobs, by number; None if Slurm does not respond."""
        answer = _run_slurm_command("squeue", "--me", "--noheader", "--format=%A|%k")
        if answer is None or answer.returncode:
            return None
        return dict(line.strip().split("|", 1) for line in answer.stdout.splitlines() if "|" in line)

    def _comment_of(self, fold_task: FoldTask) -> str:
        return str(fold_task.result_path(self._search).absolute())


def request(run: Run, memory: int) -> dict[str, Any]:
    """Return the resources of a Slurm job as parameters of submitit.

    Submitit adds no srun of its own, because the launcher starts the ranks with srun.
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
    # SLURM_CONF names the cluster to which the driver itself belongs.
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
