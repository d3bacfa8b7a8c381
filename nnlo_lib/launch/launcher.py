"""Launch of the ranks of one task by mpiexec, srun or jsrun: start, output, end.

The launcher also removes the shared memory of killed processes, and explains what prevents MPI from starting ranks here.
"""

import ctypes
import io
import os
import shlex
import shutil
import signal
import stat
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from threading import Event, Thread

from nnlo_lib.batch.surroundings import step_environment
from nnlo_lib.config.experiment import RunResources
from nnlo_lib.config.parallel import ParallelConfig
from nnlo_lib.config.paths import StatePaths
from nnlo_lib.core.errors import UserError
from nnlo_lib.core.installation import MPI_REMEDY
from nnlo_lib.core.logging_setup import get_logger, write_stderr
from nnlo_lib.core.process import interpreter_folder
from nnlo_lib.core.secrets import conceal
from nnlo_lib.launch.diagnosis import (
    SHARED_MEMORY_FOLDER,
    ExitFacts,
    LauncherOutput,
    diagnose_exit,
    shared_memory_text,
)
from nnlo_lib.launch.launcher_command import LauncherCommand, check_container, is_needed, rank_python
from nnlo_lib.launch.stop_request import SignalSource, TimeLimit
from nnlo_lib.launch.watchdog import EXIT_GRACE_S, RankProcesses, Watchdog
from nnlo_lib.state.attempt_outcome import AttemptOutcome
from nnlo_lib.state.out_of_memory import kernel_oom_kills
from nnlo_lib.train.task import Task

logger = get_logger(__name__)

MIN_SEGMENT_AGE_S = 1.0  # a younger segment may belong to another launch that has not mapped it yet
# MPICH 5.0.2 started 2 ranks in 4 MB and not in 2 MB, 4 ranks in 6 MB and not in 4 MB.
SHARED_MEMORY_PER_RANK_BYTES = 3 << 19
# MPICH exits with status 15, as after SIGTERM, if ranks exit before it has connected them.
NO_START_REASONS = ("killed", "crashed", "preempted")
PR_SET_PDEATHSIG = 1  # of <linux/prctl.h>
FABRIC_DEVICE_FOLDERS = Path("/sys/class/infiniband"), Path("/sys/class/cxi")
# With UCX, MPICH passes Slurm 4 KiB of memory that start at its address; Slurm cannot always read the bytes
# behind the address. With libfabric, MPICH does not do this.
TCP_ENVIRONMENT = {"UCX_TLS": "self,sm,tcp", "MPIR_CVAR_CH4_NETMOD": "ofi", "FI_PROVIDER": "tcp"}


def launch_ranks(
    task: Task, launcher: str, limit: TimeLimit, signals: SignalSource, lost: Event
) -> AttemptOutcome:
    """Run the task until it ends, or until a signal or the time limit makes the ranks save and stop.

    On return the ranks on this host have ended and the shared memory that they left behind is removed. All ranks are killed
    if `lost` is set, which tells that the lease of the run folder is lost.
    """
    outcome = _launch_once(task, launcher, limit, signals, lost)
    # Ranks register once MPI has connected them.
    has_started = any(task.paths.state.ranks.glob("[0-9]*"))
    if has_started or signals.first or lost.is_set() or outcome.reason not in NO_START_REASONS:
        return outcome
    if problem := shared_memory_problem(task):  # another launch cannot succeed either
        return AttemptOutcome("bad input", problem, is_user_error=True, details=outcome.details)
    reason = "killed" if outcome.reason == "preempted" else outcome.reason
    return replace(outcome, reason=reason, error=f"no rank started: {outcome.error}", no_rank_started=True)


def _launch_once(
    task: Task, launcher: str, limit: TimeLimit, signals: SignalSource, lost: Event
) -> AttemptOutcome:
    clear_previous_attempt(task.state)
    if signals.first:
        return AttemptOutcome("preempted", f"{task.folder}: stopped before the ranks started", signals.first)
    # Both record the state before the start: only later segments and kills belong to these ranks.
    segments, oom_kills_before = SharedMemoryCleanup(), kernel_oom_kills()
    try:
        process = _start_launcher_process(task, launcher, limit)
    except OSError as error:
        return AttemptOutcome(
            "bad input",
            f"cannot start the ranks with '{launcher}': {error}; check --launcher, {MPI_REMEDY}",
            is_user_error=True,
        )
    except UserError as error:
        return AttemptOutcome("bad input", str(error), is_user_error=True)
    ranks, timeout = RankProcesses(task.paths.state.ranks), task.run.parallel.peer_timeout
    watch = Watchdog(ranks, RunResources(task.run).processes, process, signals, lost, timeout)
    watch.has_failed = lambda: any(task.paths.state.failures.glob("[0-9]*"))
    output = LauncherOutput()
    watch.waits_for_step = lambda: output.waits_for_step
    watch.start()
    relay_output(process, output)
    status = 0 if watch.outlived_ranks else process.returncode
    watch.join()
    # Only now: the watchdog has killed the ranks that outlived the launcher and still mapped segments.
    segments.remove_unused()
    if watch.start_timed_out:
        text = f"timeout of {watch.start_timeout:.0f} s with '{launcher}'; {output.summary}"
        if (number := os.environ.get("SLURM_JOB_ID")) and "srun" not in launcher:
            text += (
                f"; mpiexec starts ranks by srun, as SLURM_JOB_ID is {number}: if that job has ended, or this process is not in it, "
                "`unset SLURM_JOB_ID SLURM_JOBID`"
            )
        return AttemptOutcome("killed", text, details=output.text)
    facts = ExitFacts(
        status, limit, signals.first, output, watch.first_exits, kernel_oom_kills() > oom_kills_before,
        f"'{launcher}' (process {process.pid})" if is_needed(launcher, task.run) else "", watch.lost_parent,
    )  # fmt: skip
    return diagnose_exit(task, facts)


def clear_previous_attempt(state: Path) -> None:
    """Wait for the previous attempt's ranks on this host, then kill them; delete its status files."""
    paths = StatePaths(state)
    RankProcesses(paths.ranks).wait_then_kill(EXIT_GRACE_S)
    for folder in paths.rank_status:
        shutil.rmtree(folder, ignore_errors=True)
    paths.step.unlink(missing_ok=True)


def _start_launcher_process(task: Task, launcher: str, limit: TimeLimit) -> "subprocess.Popen[bytes]":
    text = conceal(task.text)  # before the environment of the ranks is made
    environment = rank_environment(task.run.parallel)
    check_container(task.run, environment)
    command = [*rank_python(task.run), "-m", task.rank_module, text]
    # The limit is an argument, because Snakemake's jobstep plugin removes most SLURM_* variables.
    command += ["--minutes", str(limit.seconds_left / 60)] if limit.seconds_left < float("inf") else []
    if is_needed(launcher, task.run):
        starter = LauncherCommand(launcher, task.run, environment)
        # The step of mpiexec's proxies would else take all cores of the job.
        environment |= {} if starter.is_srun else {"SLURM_OVERLAP": "1"}
        command = [*starter.words, *command]
    logger.debug(f"starts the ranks: {shlex.join(word if word != text else 'TASK' for word in command)}")
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        preexec_fn=die_with_parent, stdin=subprocess.DEVNULL,
    )  # fmt: skip


def rank_environment(parallel: ParallelConfig) -> dict[str, str]:
    """Return the environment of the ranks: thread limits, PATH, MPI network.

    This Python's folder comes first in PATH, so that its mpiexec is found. On hosts without a fabric device,
    MPI is restricted to TCP; variables that are set already are kept.
    """
    threads = str(parallel.threads_per_rank)
    path = f"{interpreter_folder()}{os.pathsep}{os.environ.get('PATH', '')}"
    own = {"OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads, "PATH": path}
    environment = step_environment(os.environ) | own
    if not any(path.exists() for path in FABRIC_DEVICE_FOLDERS):
        environment = TCP_ENVIRONMENT | environment
    if sys.stderr.isatty():
        # The ranks write to a pipe and cannot detect the terminal themselves.
        environment["NNLO_TERMINAL"] = "1"
    return environment


def die_with_parent(by: int = signal.SIGTERM) -> None:
    """Make the kernel send signal `by` to this process when its parent dies (Linux).

    SIGHUP is ignored: mpiexec would end by it, and the parent process tells when the ranks stop.
    """
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, by)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)


def relay_output(process: "subprocess.Popen[bytes]", output: LauncherOutput) -> None:
    """Relay what a launcher prints to stderr until it ends, except boilerplate, and parse it into `output`.

    On return the launcher has exited. Its output normally ends then, too; a background process of a rank may keep
    the pipe open, and is left after EXIT_GRACE_S.
    """
    assert process.stdout is not None
    # newline="" also splits at \r, which ends a progress bar, and keeps it.
    lines = io.TextIOWrapper(process.stdout, errors="replace", newline="")

    def relay() -> None:
        for line in filter(output.parse_line, lines):
            write_stderr(line)

    # In a thread, because a read has no time limit. All output is read: a full pipe would block the ranks.
    reader = Thread(target=relay, daemon=True)
    reader.start()
    process.wait()
    reader.join(EXIT_GRACE_S)
    if reader.is_alive():
        logger.warning(
            f"process {process.pid} has exited, but a process that it started still has its output open"
        )


def shared_memory_problem(task: Task) -> str:
    """Return why MPI could not connect ranks in shared memory, or an empty string if there is enough of it."""
    ranks = RunResources(task.run).processes
    try:
        free = shutil.disk_usage(SHARED_MEMORY_FOLDER).free
    except OSError:
        free = 0
    if ranks == 1 or free >= ranks * SHARED_MEMORY_PER_RANK_BYTES:
        return ""
    return (
        f"no rank started: {shared_memory_text()}; enlarge it, for example by `docker run --shm-size=1g` or "
        f"`mount -o remount,size=1g {SHARED_MEMORY_FOLDER}`"
    )


class SharedMemoryCleanup:
    """MPICH's shared memory segments of this user that appear after the construction of this object."""

    def __init__(self) -> None:
        self._before = self._segments()

    def remove_unused(self) -> None:
        """Remove the segments that no process has mapped."""
        left, used = [], ""
        for path in self._segments() - self._before:
            with suppress(OSError):
                # `stat` follows a link of another user to its target, which can belong to this user.
                status = path.lstat()
                is_own = stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid()
                if is_own and time.time() - status.st_mtime > MIN_SEGMENT_AGE_S:
                    left.append(path)
        for maps in Path("/proc").glob("[0-9]*/maps") if left else ():
            with suppress(OSError):
                used += maps.read_text()
        for path in left:
            if str(path) not in used:
                path.unlink(missing_ok=True)

    @staticmethod
    def _segments() -> set[Path]:
        return set(SHARED_MEMORY_FOLDER.glob("mpich_shm_*"))
