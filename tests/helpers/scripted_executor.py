"""Snakemake's scheduler and an executor plugin in virtual time, around the real WatchedExecutor."""

import shlex
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from helpers.scripted_slurm import ScriptedSlurm
from nnlo_lib.batch.slurm_queue import SlurmQueue
from nnlo_lib.cluster.watched_executor import WatchedExecutor


@dataclass(eq=False)
class ScriptedTask:
    """A job of Snakemake; `restart_times` is the number of its retries."""

    name: str
    output: tuple[str, ...]
    restart_times: int = 3
    attempt: int = 1
    resources: dict[str, Any] = field(default_factory=dict)
    wildcards: tuple[str, ...] = ()
    params: tuple[str, ...] = ()
    input: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self.jobid, self.rule = self.name, SimpleNamespace(name=self.name)

    def is_group(self) -> bool:
        return False


def logs_of(task: ScriptedTask) -> Path:
    """Return the folder of the logs of a task."""
    return Path("logs", task.name).absolute()


@dataclass
class JobInfo:
    """Like Snakemake's SubmittedJobInfo."""

    job: ScriptedTask
    external_jobid: str = ""
    aux: dict[str, Any] | None = None


class PluginExecutor:
    """What WatchedExecutor expects of the plugin's executor."""

    def __init__(self, slurm: ScriptedSlurm) -> None:
        self.slurm, self.run_uuid = slurm, "uuid"
        self.active: list[JobInfo] = []
        self.done: list[str] = []
        self.failed: list[str] = []
        self.lines: list[str] = []
        self.logger = SimpleNamespace(warning=self.lines.append)
        self.workflow: Any = SimpleNamespace(
            executor_settings=None, persistence=SimpleNamespace(external_jobids=lambda job: [])
        )
        self.__post_init__()

    def __post_init__(self) -> None: ...

    def run_job(self, job: ScriptedTask) -> None:
        try:
            status = Path(shlex.split(self.get_job_exec_prefix(job))[2])
            number = self.slurm.submit(
                job.name, status, (self.run_uuid, f"rule_{job.name}", str(logs_of(job)))
            )
        except ConnectionError as error:
            if message := self._after_refusal(job, str(error)):
                self.report_job_error(JobInfo(job), msg=message)
            return
        self.report_job_submission(JobInfo(job, number))

    def report_job_submission(self, info: JobInfo, register_job: bool = True) -> None:
        self.active.append(info)

    def report_job_success(self, info: JobInfo) -> None:
        self.done.append(info.job.name)

    def report_job_error(self, info: JobInfo, msg: str = "", **_: Any) -> None:
        """Count a try, as Snakemake does; fail the job after the last."""
        self.lines.append(msg)
        if info.job.attempt > info.job.restart_times:
            self.failed.append(info.job.name)
        else:
            info.job.attempt += 1
            self.run_job(info.job)

    def shutdown(self) -> None: ...


class ScriptedExecutor(WatchedExecutor, PluginExecutor):
    """WatchedExecutor on a ScriptedSlurm; delays pass in virtual time."""

    def __init__(self, slurm: ScriptedSlurm) -> None:
        self._clock = lambda: slurm.now  # type: ignore[method-assign]
        PluginExecutor.__init__(self, slurm)

    def run_until_done(self, tasks: list[ScriptedTask], limit: float) -> None:
        """Submit the tasks and look at them until all have ended; raise TimeoutError after `limit` virtual seconds."""
        for task in tasks:
            self.run_job(task)
        while len(self.done) + len(self.failed) < len(tasks):
            if self.slurm.now > limit:
                raise TimeoutError(f"{self.active} {self.slurm.jobs} {self.lines}")
            self.slurm.advance(2)
            looked_at, self.active = self.active, []
            self.active += self._still_active(looked_at) if looked_at else []

    log_key, info_class = "log", JobInfo

    def _new_queue(self) -> SlurmQueue:
        return SlurmQueue(self.slurm.run)

    def _submitted_numbers(self, job: ScriptedTask) -> list[str] | None:
        return self._queue.find_submitted(self.run_uuid, f"rule_{job.name}", logs_of(job))

    def _submitted_info(self, job: ScriptedTask, number: str) -> JobInfo:
        return JobInfo(job, number, {"status_file": str(self.slurm.jobs[number].status.path)})

    def _after(self, seconds: float, function: Callable[..., None], *arguments: Any) -> None:
        self.slurm.at(self.slurm.now + seconds, lambda: function(*arguments))
