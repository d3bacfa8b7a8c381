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
from nnlo_lib.errors import UserError
from nnlo_lib.jobs import gpus
from nnlo_lib.search.trial import Leaf
from nnlo_lib.state.scheduler import Job
from nnlo_lib.state.speech import say
from nnlo_lib.tune.leaf_job import LeafJob
from nnlo_lib.tune.queue import FOLDER
from nnlo_lib.tune.ticket import Ticket

ANSWER = 60  # seconds for Slurm to answer
BUSY = re.compile(r"timed out|[Uu]nable to contact|temporarily")
PAUSES = (5, 15, 30, 60, 60, 60)  # seconds
FOR_EVER = 10**9  # so often may a job run out of time: the launcher judges by progress
LAUNCHER = "srun --mpi=pmi2 --kill-on-bad-exit=1"  # as profiles/slurm/config.yaml explains


def slurm_is_here() -> bool:
    """Tell whether this machine belongs to a Slurm, be its controller up or not."""
    told = _ask("scontrol", "ping") if shutil.which("sbatch") else None
    return told is not None and "Slurmctld" in told.stdout


class SlurmQueue:
    """Jobs of Slurm, all of one name; the comment of each is the result that it is to bring."""

    look = 10.0

    def __init__(self, search: Path, name: str, launcher: str) -> None:
        self._search, self._name = search, name
        self.launcher = LAUNCHER if launcher == "mpiexec" else launcher  # which hears no signals there

    def submit(self, job: LeafJob, run: Run, memory: int) -> Ticket:
        """Queue a job that asks for what its training wants; Slurm may be away for some minutes."""
        for pause in PAUSES:
            try:
                return Ticket("slurm", self._submitted(job, run, memory))
            except RuntimeError as error:
                if not BUSY.search(str(error)):
                    raise UserError(f"Slurm does not take trial {job.leaf.trial}: {error}") from error
            say(f"warning: Slurm does not answer; trying again in {pause} seconds")
            time.sleep(pause)
            if found := self.find(job.leaf):
                return found
        raise UserError("Slurm has not answered for minutes; the same command goes on once it does")

    def find(self, leaf: Leaf) -> Ticket | None:
        """Return the job of a leaf by what is on disk, or by its comment if its driver died too early to write."""
        queue, written = self._jobs(), Ticket.read(self._search, leaf)
        if queue is None or (written and written.job in queue):
            return written
        return next((Ticket("slurm", job) for job, mark in queue.items() if mark == self._mark(leaf)), None)

    def ended(self, tickets: Iterable[Ticket]) -> set[Ticket]:
        """Return those that are not in the queue."""
        queue = self._jobs()
        return set() if queue is None else {ticket for ticket in tickets if ticket.job not in queue}

    def was_cancelled(self, ticket: Ticket) -> bool:
        """Ask the controller, which remembers for some minutes, and the accounting, which a site may lack."""
        told = _ask("squeue", "--noheader", "--states=all", f"--jobs={ticket.job}", "--format=%T")
        return (told is not None and "CANCELLED" in told.stdout) or Job("slurm", ticket.job).was_cancelled()

    def leave(self, tickets: Iterable[Ticket]) -> str:
        """Let jobs go on."""
        jobs = " ".join(sorted(ticket.job for ticket in tickets))
        return f"Slurm goes on with its jobs {jobs}; `scancel --name={self._name}` ends all of this search"

    def _submitted(self, job: LeafJob, run: Run, memory: int) -> str:
        executor = AutoExecutor(
            self._search / FOLDER, "slurm", slurm_max_num_timeout=FOR_EVER,
            slurm_python=f"exec {shlex.quote(sys.executable)}",
        )  # fmt: skip
        executor.update_parameters(
            **request(run, memory), name=self._name, slurm_comment=self._mark(job.leaf)
        )
        with _outside_any_job():
            return executor.submit(job).job_id

    def _jobs(self) -> dict[str, str] | None:
        """Return the comments of this user's jobs that wait or run, by number; None if Slurm does not answer."""
        told = _ask("squeue", "--me", "--noheader", "--format=%A|%k")
        if told is None or told.returncode:
            return None
        return dict(line.strip().split("|", 1) for line in told.stdout.splitlines() if "|" in line)

    def _mark(self, leaf: Leaf) -> str:
        return str(leaf.path(self._search).absolute())


def request(run: Run, memory: int) -> dict[str, Any]:
    """Return what a job of Slurm asks for, in submitit's words; no srun of submitit's is around that of the ranks."""
    parallel, wanted = run.parallel, run.resources
    ranks = 1 if parallel.transport == "simulated" else parallel.ranks
    asked = {"gpus": gpus(run)} if gpus(run) else {}
    return {
        "timeout_min": wanted.runtime, "nodes": wanted.nodes, "cpus_per_task": parallel.threads_per_rank,
        "stderr_to_stdout": True, "slurm_mem": f"{memory}M", "slurm_partition": wanted.partition,
        "slurm_account": wanted.account, "slurm_use_srun": False,
        "slurm_additional_parameters": {"ntasks": ranks, "requeue": True, **asked},
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


def _ask(*command: str) -> "subprocess.CompletedProcess[str] | None":
    """Run a command of Slurm's; None if it is not there, or does not end."""
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=ANSWER, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
