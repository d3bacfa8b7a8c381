"""A Slurm in virtual time, scripted by tests: it answers squeue, sacct, scontrol and scancel, and runs jobs that need time.

This stands in for a cluster, and no code of Slurm is used; tests/slurm has the real one.
"""

import math
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from nnlo_lib.cluster.job_watch import StatusFile

ACTIVE = ("PENDING", "RUNNING")


@dataclass
class ScriptedJob:
    """A job: it is pending until `starts`, then does the work that its task has left, and writes its status file."""

    number: str
    task: str
    status: StatusFile
    starts: float
    state: str = "PENDING"
    ended: float | None = None


@dataclass
class ScriptedSlurm:
    """The cluster.

    Attributes:
        work: seconds of work that each task has left; work is kept when a job ends early.
        accounting: whether sacct answers.
        min_job_age: seconds after which slurmctld forgets an ended job.
        requeues: whether Slurm queues preempted jobs again under their numbers.
        queue_time: seconds that a job is pending.
        max_submitted: number of active jobs from which on Slurm refuses further jobs.
    """

    work: dict[str, float]
    accounting: bool = True
    min_job_age: float = 300
    requeues: bool = False
    queue_time: float = 5
    max_submitted: float = math.inf
    now: float = 0
    jobs: dict[str, ScriptedJob] = field(default_factory=dict)
    down_until: float = 0
    failing_squeues: int = 0
    refusing_until: float = 0
    lost_answers: int = 0
    silent_after_lost_answer: float = 0
    unreadable: str = "Job submission failed with exception: sbatch printed no number"
    most_at_once: int = 0
    _events: list[tuple[float, Callable[[], None]]] = field(default_factory=list)

    def at(self, time: float, event: Callable[[], None]) -> None:
        """Call `event` when the virtual clock reaches `time`."""
        self._events.append((time, event))

    def submit(self, task: str, status: Path) -> str:
        """Return the number of a new job. Raises ConnectionError with sbatch's words if Slurm refuses."""
        active = [job for job in self.jobs.values() if job.state in ACTIVE]
        if self.is_down or self.now < self.refusing_until or len(active) >= self.max_submitted:
            raise ConnectionError(
                "sbatch: error: QOSMaxSubmitJobPerUserLimit\nsbatch: error: Batch job submission failed: Job violates "
                "accounting/QOS policy (job submit limit, user's size and/or time limits)"
            )
        number = str(len(self.jobs) + 1)
        self.jobs[number] = ScriptedJob(number, task, StatusFile(status), self.now + self.queue_time)
        if self.lost_answers:
            self.lost_answers -= 1
            self.down_until = self.now + self.silent_after_lost_answer
            raise ConnectionError(self.unreadable)
        return number

    @property
    def is_down(self) -> bool:
        """Whether slurmctld does not answer."""
        return self.now < self.down_until

    def advance(self, seconds: float = 1) -> None:
        """Let time pass, second by second."""
        for _ in range(round(seconds)):
            self.now += 1
            due = [event for time, event in self._events if time <= self.now]
            self._events = [each for each in self._events if each[0] > self.now]
            for event in due:
                event()
            for job in list(self.jobs.values()):
                self._step(job)
            tasks = [job.task for job in self.jobs.values() if job.state == "RUNNING"]
            self.most_at_once = max([self.most_at_once, *(tasks.count(task) for task in tasks)])

    def end(self, number: str, state: str) -> None:
        """End a job in a state, as by preemption, loss of its node or scancel; the job writes nothing."""
        job = self.jobs.get(number)
        if job and job.state in ACTIVE:
            if self.requeues and state in ("PREEMPTED", "NODE_FAIL"):
                job.state, job.starts = "PENDING", self.now + self.queue_time
            else:
                job.state, job.ended = state, self.now

    def requeue_late(self, number: str, seconds: float) -> None:
        """Preempt a job, and queue the job again after some seconds in which Slurm reports PREEMPTED."""
        if number not in self.jobs or self.jobs[number].state not in ACTIVE:
            return
        self.end(number, "PREEMPTED")
        self.jobs[number].ended = None  # slurmctld does not forget a job that it will queue again
        self.at(self.now + seconds, lambda: self._revive(number))

    def _revive(self, number: str) -> None:
        job = self.jobs.get(number)
        if job and job.state == "PREEMPTED":
            job.state, job.starts, job.ended = "PENDING", self.now + self.queue_time, None

    def _cancel(self, number: str) -> "subprocess.CompletedProcess[str]":
        if self.is_down:
            return self._answer("", "scancel: error: Unable to contact slurm controller (connect failure)")
        job = self.jobs[number]
        if job.state in (*ACTIVE, "PREEMPTED"):
            job.state, job.ended = "CANCELLED by 1000", self.now
        return self._answer("")

    def run(self, program: str, *arguments: str) -> "subprocess.CompletedProcess[str] | None":
        """Answer a command of Slurm."""
        if program == "scancel":
            return self._cancel(arguments[-1])
        if program == "sacct":
            numbers = arguments[-1].partition("=")[2].split(",")
            known = [self.jobs[number] for number in numbers if number in self.jobs]
            lines = "".join(f"{job.number}|{job.state}\n" for job in known)
            return self._answer(lines) if self.accounting else None
        if self.is_down:
            return self._answer("", "squeue: error: Unable to contact slurm controller (connect failure)")
        if program == "squeue":
            return self._squeue()
        if arguments[:2] == ("show", "config"):
            kind = "slurmdbd" if self.accounting else "none"
            return self._answer(f"AccountingStorageType   = accounting_storage/{kind}\n")
        if any(job.number == arguments[-1] for job in self._remembered):
            return self._answer("JobId=1\n")
        return self._answer("", "slurm_load_jobs error: Invalid job id specified")

    def _squeue(self) -> "subprocess.CompletedProcess[str]":
        if self.failing_squeues:
            self.failing_squeues -= 1
            return self._answer("", "slurm_load_jobs error: Socket timed out on send/recv operation")
        return self._answer("".join(f"{job.number}|{job.state}|None\n" for job in self._remembered))

    @property
    def _remembered(self) -> list[ScriptedJob]:
        jobs = self.jobs.values()
        return [job for job in jobs if job.ended is None or self.now < job.ended + self.min_job_age]

    def _step(self, job: ScriptedJob) -> None:
        if job.state == "PENDING" and self.now >= job.starts and not self.is_down:
            job.state = "RUNNING"
            job.status.path.unlink(missing_ok=True)
        elif job.state == "RUNNING":
            self.work[job.task] -= 1
            if self.work[job.task] <= 0:
                job.state, job.ended = "COMPLETED", self.now
                job.status.path.write_text("done\n")

    @staticmethod
    def _answer(output: str, error: str = "") -> "subprocess.CompletedProcess[str]":
        return subprocess.CompletedProcess([], int(bool(error)), output, error)
