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
KILL_WAIT_S = 5  # between SIGTERM and the end of the last process
HELD = math.inf  # start of a job that is held


@dataclass
class ScriptedJob:
    """A job: it is pending until `starts`, then does the work that its task has left, and writes its status file."""

    number: str
    task: str
    status: StatusFile
    starts: float
    state: str = "PENDING"
    ended: float | None = None
    reason: str = "None"
    may_requeue: bool = True  # `Requeue` of scontrol
    # name, comment and folder of the log; a site may rewrite the first two
    marks: tuple[str, str, str] = ("", "", "")
    is_preempted: bool = False  # whether the job has a `PreemptTime`
    is_queued_again: bool = False  # whether the job, which is completing, is then pending
    # states in which the accounting has the runs that have ended
    runs: list[str] = field(default_factory=list)
    restarts: int = 0

    @property
    def record(self) -> str:
        """The job as `scontrol --oneliner show job` prints it, shortened."""
        end = "Unknown" if self.is_queued_again or self.state in ACTIVE else "2026-01-01T00:00:00"
        selected = "2026-01-01T00:00:00" if self.is_preempted else "None"
        return (
            f"JobId={self.number} JobName=x JobState={self.state} Reason={self.reason.replace(' ', '_')} Requeue={int(self.may_requeue)} "
            f"Restarts={self.restarts} EndTime={end} PreemptTime={selected} StdOut=/dev/null Power="
        )


@dataclass
class ScriptedSlurm:
    """The cluster."""

    work: dict[str, float]  # seconds of work that each task has left; work is kept when a job ends early
    accounting: bool = True  # whether sacct answers
    min_job_age: float = 300  # seconds after which slurmctld forgets an ended job
    requeues: bool = False  # whether Slurm queues preempted jobs again under their numbers
    queue_time: float = 5  # seconds that a job is pending
    max_submitted: float = math.inf  # number of active jobs from which on Slurm refuses further jobs
    now: float = 0
    jobs: dict[str, ScriptedJob] = field(default_factory=dict)
    down_until: float = 0
    failing_squeues: int = 0
    refusing_until: float = 0
    lost_answers: int = 0
    silent_after_lost_answer: float = 0
    unreadable: str = "Job submission failed with exception: sbatch printed no number"
    most_at_once: int = 0
    # called when the processes of a job get SIGTERM for the first time; by default, nothing in the job reacts
    launcher: Callable[[ScriptedJob], None] | None = None
    may_requeue: bool = True  # `Requeue` of new jobs
    # name and comment that the site gives each job in place of its own
    rewrites: tuple[str, str] | None = None
    _events: list[tuple[float, Callable[[], None]]] = field(default_factory=list)

    def at(self, time: float, event: Callable[[], None]) -> None:
        """Call `event` when the virtual clock reaches `time`."""
        self._events.append((time, event))

    def submit(self, task: str, status: Path, marks: tuple[str, str, str] = ("", "", "")) -> str:
        """Return the number of a new job. Raises ConnectionError with sbatch's words if Slurm refuses."""
        active = [job for job in self.jobs.values() if job.state in ACTIVE]
        if self.is_down or self.now < self.refusing_until or len(active) >= self.max_submitted:
            raise ConnectionError(
                "sbatch: error: QOSMaxSubmitJobPerUserLimit\nsbatch: error: Batch job submission failed: Job violates "
                "accounting/QOS policy (job submit limit, user's size and/or time limits)"
            )
        number = str(len(self.jobs) + 1)
        self.jobs[number] = ScriptedJob(
            number, task, StatusFile(status), self.now + self.queue_time, may_requeue=self.may_requeue, marks=(*(self.rewrites or marks[:2]), marks[2])
        )  # fmt: skip
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

    def stop(self, number: str, state: str, reason: str = "None", grace: float = 0) -> None:
        """Stop the run of a job as slurmctld does: SIGTERM, COMPLETING with a reason, then `state`, or PENDING if it is queued again.

        With a grace time, the job is selected for preemption, gets SIGTERM and runs until the time is over.
        """
        job = self.jobs[number]
        if grace:
            job.is_preempted = True
            self._signal(job)
            self.at(
                self.now + grace,
                lambda: self._complete(job, state, reason) if job.state == "RUNNING" else None,
            )
        else:
            self._complete(job, state, reason)

    def hold(self, number: str, reason: str, state: str = "PENDING") -> None:
        """Queue the job again in held state."""
        job = self.jobs[number]
        self._complete(job, "REQUEUED", reason)
        self.at(self.now + KILL_WAIT_S + 1, lambda: vars(job).update(state=state, starts=HELD))
        job.reason = reason

    def release(self, number: str) -> None:
        """Release a held job."""
        vars(self.jobs[number]).update(state="PENDING", reason="None", starts=self.now + self.queue_time)

    def _complete(self, job: ScriptedJob, state: str, reason: str) -> None:
        job.is_queued_again = job.may_requeue and state in ("PREEMPTED", "NODE_FAIL", "REQUEUED")
        job.is_preempted = not job.is_queued_again and (job.is_preempted or state == "PREEMPTED")
        job.state, job.reason = "COMPLETING", "None" if job.is_queued_again else reason
        job.restarts += job.is_queued_again
        job.runs.append(state)
        self._signal(job)
        self.at(self.now + KILL_WAIT_S, lambda: self._leave(job, state))

    def _leave(self, job: ScriptedJob, state: str) -> None:
        """Let the last process of a completing job end."""
        if job.is_queued_again:
            job.state, job.starts, job.is_queued_again = "PENDING", self.now + self.queue_time, False
        else:
            job.state, job.ended = state, self.now

    def _signal(self, job: ScriptedJob) -> None:
        launcher, self.launcher = self.launcher, None
        if launcher:
            launcher(job)
            if job.state == "RUNNING":  # the batch script ends with the launcher
                job.status.path.write_text("failed\n")
                self._complete(job, "FAILED", "NonZeroExitCode")

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
            return self._sacct(arguments) if self.accounting else None
        if self.is_down:
            return self._answer("", "squeue: error: Unable to contact slurm controller (connect failure)")
        if program == "squeue":
            return self._squeue(any(each.startswith("--Format") for each in arguments))
        if arguments[:2] == ("show", "config"):
            kind = "slurmdbd" if self.accounting else "none"
            return self._answer(f"AccountingStorageType   = accounting_storage/{kind}\n")
        for job in self._remembered:
            if job.number == arguments[-1] and arguments[0] == "requeue":
                if not job.may_requeue:
                    return self._answer("", "Requested operation is presently disabled for job 1")
                self._complete(job, "REQUEUED", "None")
            if job.number == arguments[-1]:
                return self._answer(f"{job.record}\n")
        return self._answer("", "slurm_load_jobs error: Invalid job id specified")

    def _sacct(self, arguments: tuple[str, ...]) -> "subprocess.CompletedProcess[str]":
        """Answer with the state of each job, and with -D also with the ends of its runs."""
        (numbers,) = (each.partition("=")[2].split(",") for each in arguments if each.startswith("--jobs="))
        rows = [
            (job.number, state)
            for job in self.jobs.values()
            if job.number in numbers
            for state in ([*job.runs, job.state] if "-D" in arguments else [job.state])
        ]
        if "-o" not in arguments:
            return self._answer("".join(f"{number}|{state}\n" for number, state in rows))
        fields = arguments[arguments.index("-o") + 1].split(",")
        values = [{"JobID": number, "JobIDRaw": number, "State": state} for number, state in rows]
        return self._answer("".join("|".join(row.get(name, "") for name in fields) + "\n" for row in values))

    def _squeue(self, with_marks: bool) -> "subprocess.CompletedProcess[str]":
        if self.failing_squeues:
            self.failing_squeues -= 1
            return self._answer("", "slurm_load_jobs error: Socket timed out on send/recv operation")
        if with_marks:
            rows = [
                (job.number, *job.marks[:2], str(Path.cwd()), f"{job.marks[2]}/%j.log", "")
                for job in self._remembered
            ]
            return self._answer("".join("\t".join(row) + "\n" for row in rows))
        return self._answer("".join(f"{job.number}|{job.state}|{job.reason}\n" for job in self._remembered))

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
