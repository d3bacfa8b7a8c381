"""Start the ranks of one training, speak for them, and see that nothing is left when they end."""

import ctypes
import io
import os
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from threading import Event

from nnlo_lib.config import Parallel
from nnlo_lib.launch.hints import Hints
from nnlo_lib.launch.limit import Limit
from nnlo_lib.launch.oom import kernel_kills
from nnlo_lib.launch.ranks import Ranks
from nnlo_lib.launch.segments import Segments
from nnlo_lib.launch.signals import Heard
from nnlo_lib.launch.verdict import End, verdict
from nnlo_lib.launch.watch import PATIENCE, Watch
from nnlo_lib.state.outcome import Outcome
from nnlo_lib.state.speech import say, say_raw
from nnlo_lib.train.task import Task

STARTS = 3  # tries to bring ranks up: MPI may fail to connect them on a busy machine
FABRICS = Path("/sys/class/infiniband"), Path("/sys/class/cxi")
# MPICH's UCX gives Slurm 4 KiB of whatever lies behind its address, which Slurm cannot always read; libfabric does not
PLAIN = {"UCX_TLS": "self,sm,tcp", "MPIR_CVAR_CH4_NETMOD": "ofi", "FI_PROVIDER": "tcp"}
NOTES = ("ranks", "failures", "stopped")  # folders of what ranks leave for their launcher


def launch(task: Task, launcher: str, limit: Limit, signals: Heard, lost: Event) -> Outcome:
    """Run the task to its end, or until a signal or the limit makes the ranks save and stop; say how it ended.

    No rank of this host is left then, nor what it had in shared memory. lost: ends all at once.
    """
    for start in range(STARTS):
        if start:
            say("no rank came up; starting them again")
        outcome = _launch(task, launcher, limit, signals, lost)
        if signals.first or lost.is_set() or not _never_came_up(task, outcome):
            return outcome
    return Outcome("killed", f"no rank came up, {STARTS} times; what '{launcher}' said is above")


def _never_came_up(task: Task, outcome: Outcome) -> bool:
    """Tell whether all ranks ended, or hung, before MPI had connected them; MPICH's status is then that of a TERM, 15."""
    return outcome.reason in ("killed", "preempted") and not any((task.state / "ranks").glob("[0-9]*"))


def _launch(task: Task, launcher: str, limit: Limit, signals: Heard, lost: Event) -> Outcome:
    clear(task.state)
    if signals.first:
        return Outcome("preempted", f"{task.folder}: stopped before it began", signals.first)
    segments, starved = Segments(), kernel_kills()
    try:
        process = _start(task, launcher, limit)
    except OSError as error:
        return Outcome("bad input", f"cannot start the ranks by '{launcher}': {error}", usage=True)
    timeout = task.run.parallel.peer_timeout
    watch = Watch(Ranks(task.state / "ranks"), _processes(task), process, signals, lost, timeout)
    watch.start()
    told = relay(process)
    status = process.wait()
    watch.join()
    segments.clear()
    if watch.given_up:
        return Outcome("killed", f"no rank came up in time; what '{launcher}' said is above")
    return verdict(task, End(status, told, watch.first, signals.first, kernel_kills() > starved, limit))


def _start(task: Task, launcher: str, limit: Limit) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        _command(task, launcher, limit), env=environment(task.run.parallel), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        preexec_fn=die_with_parent, stdin=subprocess.DEVNULL,
    )  # fmt: skip


def clear(state: Path) -> None:
    """Forget the attempt before; ranks of it that its launcher left behind on this host are waited for, and ended."""
    Ranks(state / "ranks").outlast(PATIENCE)
    for folder in NOTES:
        shutil.rmtree(state / folder, ignore_errors=True)
    (state / "step").unlink(missing_ok=True)


def _command(task: Task, launcher: str, limit: Limit) -> list[str]:
    rank = [sys.executable, "-m", "nnlo_lib.train.rank", task.text]
    rank += ["--minutes", str(limit.left / 60)] if limit.left < float("inf") else []
    processes, slurm = _processes(task), "srun" in launcher
    if slurm:  # srun inside a job forgets the cores that the job asked for
        launcher = f"{launcher} --cpus-per-task={task.run.parallel.threads_per_rank}"
    return [*shlex.split(launcher), "-n", str(processes), *rank] if slurm or processes > 1 else rank


def _processes(task: Task) -> int:
    parallel = task.run.parallel
    return 1 if parallel.transport == "simulated" else parallel.ranks


def environment(parallel: Parallel) -> dict[str, str]:
    """Bound the threads; find the mpiexec beside this python; name the network if there is but one."""
    threads = str(parallel.threads_per_rank)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    environment = {**os.environ, "OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads, "PATH": path}
    if not any(path.exists() for path in FABRICS):
        environment = PLAIN | environment
    if sys.stderr.isatty():
        environment["NNLO_TERMINAL"] = "1"
    return environment


def die_with_parent(by: int = signal.SIGTERM) -> None:
    """Let the kernel end a child, politely, when the process that started it is killed (Linux)."""
    set_parent_death_signal = 1
    ctypes.CDLL(None).prctl(set_parent_death_signal, by)


def relay(process: "subprocess.Popen[bytes]") -> dict[str, str]:
    """Pass the ranks' words on as they come; keep back the launcher's, and return what they tell."""
    hints = Hints()
    assert process.stdout is not None
    for line in io.TextIOWrapper(process.stdout, errors="replace", newline=""):  # a progress bar ends in \r
        if hints.hear(line):
            say_raw(line)
    return hints.told
