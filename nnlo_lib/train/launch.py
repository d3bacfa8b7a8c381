"""Start the ranks of one training, speak for them, and see that nothing is left when they end."""

import ctypes
import io
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nnlo_lib.errors import UserError
from nnlo_lib.train.task import Task
from nnlo_lib.train.watch import Watch

PREEMPTED = 75
FORWARDED = (signal.SIGTERM, signal.SIGUSR1)
BANNER = re.compile(r"^=|^YOUR APPLICATION TERMINATED|^This typically refers|^Please see the FAQ|^Abort\(")
KILLED = re.compile(r"PID (?P<pid>\d+) RUNNING AT (?P<host>\S+)|error: (?P<node>\S+): tasks? (?P<task>\d+)")
SIGNAL = re.compile(r"EXIT CODE: (?P<code>\d+)")


class TrainingFailedError(Exception):
    """The ranks ended without a result; the message says why and names the rank."""


class PreemptedError(Exception):
    """The ranks were asked to stop, and saved."""


def launch(task: Task, launcher: str = "mpiexec", minutes: float | None = None) -> None:
    """Run the task to its end; before the time limit of `minutes` the ranks save and stop.

    Raises UserError for the user's mistake, PreemptedError if the ranks saved and stopped, TrainingFailedError else.
    """
    for folder in ("ranks", "failures"):
        shutil.rmtree(task.state / folder, ignore_errors=True)
    command = _command(task, launcher, minutes)
    process = subprocess.Popen(
        command, env=_environment(task), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        preexec_fn=_die_with_parent, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    _forward_signals(process)
    watch = Watch(task.state / "ranks", task.run.parallel.ranks)
    watch.start()
    hints = list(_relay(process))
    status = process.wait()
    ended_first = watch.stop()
    if status:
        _explain(task, status, hints, ended_first)


def _command(task: Task, launcher: str, minutes: float | None) -> list[str]:
    fields = {
        "experiment": task.experiment, "name": task.name, "run": task.run.model_dump(mode="json"),
        "seed": task.seed, "fold": task.fold, "folds": task.folds,
        "manifest": str(task.manifest), "folder": str(task.folder),
    }  # fmt: skip
    rank = [sys.executable, "-m", "nnlo_lib.train.rank", json.dumps(fields)]
    rank += ["--minutes", str(minutes)] if minutes else []
    parallel, slurm = task.run.parallel, "srun" in launcher
    processes = 1 if parallel.transport == "simulated" else parallel.ranks
    if slurm:  # srun inside a job forgets the cores that the job asked for
        rank.append("--wait-for-requeue")
        launcher = f"{launcher} --cpus-per-task={parallel.threads_per_rank}"
    return [*shlex.split(launcher), "-n", str(processes), *rank] if slurm or processes > 1 else rank


def _environment(task: Task) -> dict[str, str]:
    """Bound the threads; find the mpiexec beside this python; keep UCX off devices that are not there."""
    threads = str(task.run.parallel.threads_per_rank)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    environment = {**os.environ, "OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads, "PATH": path}
    if not Path("/sys/class/infiniband").exists():
        environment.setdefault("UCX_TLS", "self,sm,tcp")
    if sys.stderr.isatty():
        environment["NNLO_TERMINAL"] = "1"
    return environment


def _die_with_parent() -> None:
    """Let the kernel end the launcher when this process is killed (Linux)."""
    set_parent_death_signal = 1
    ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGTERM)


def _forward_signals(process: "subprocess.Popen[bytes]") -> None:
    for number in FORWARDED:
        signal.signal(number, lambda received, _: process.send_signal(received))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the ranks by itself; wait for them to save


def _relay(process: "subprocess.Popen[bytes]") -> Iterator[re.Match[str]]:
    """Pass the ranks' words on as they come; keep back the launcher's, yielding what they tell."""
    assert process.stdout is not None
    for line in io.TextIOWrapper(process.stdout, errors="replace", newline=""):  # a progress bar ends in \r
        for pattern in (KILLED, SIGNAL):
            if found := pattern.search(line):
                yield found
        if not BANNER.search(line):
            sys.stderr.write(line)
            sys.stderr.flush()


def _explain(task: Task, status: int, hints: list[re.Match[str]], ended_first: list[str]) -> None:
    failures = [json.loads(path.read_text()) for path in (task.state / "failures").glob("[0-9]*")]
    if failures:
        first = min(failures, key=lambda failure: (not failure["certain"], failure["time"]))
        if first["status"] == 2:
            raise UserError(first["error"])
        raise TrainingFailedError(f"rank {first['rank']} failed: {first['error']}")
    if status == PREEMPTED:
        raise PreemptedError(f"{task.folder}: stopped and saved; the same command goes on from there")
    raise TrainingFailedError(_who_was_killed(task, status, hints, ended_first))


def _who_was_killed(task: Task, status: int, hints: list[re.Match[str]], ended_first: list[str]) -> str:
    told: dict[str, Any] = {}
    for hint in hints:
        told = {key: value for key, value in hint.groupdict().items() if value} | told
    ranks = {path.name: json.loads(path.read_text()) for path in (task.state / "ranks").glob("[0-9]*")}
    named = (
        [told["task"]] if "task" in told else [r for r in ranks if str(ranks[r]["pid"]) == told.get("pid")]
    )
    suspects = [rank for rank in named if rank in ended_first] or ended_first or named
    if not suspects:
        return f"the launcher ended with status {status}, and no rank said why; see the lines above"
    names = ", ".join(f"rank {rank}{_address(ranks.get(rank))}" for rank in suspects)
    how = f"signal {told['code']}" if "code" in told else "a signal"
    return (
        f"{names} was killed by {how}; all other ranks were ended. Out of memory and the scheduler are the "
        "usual senders; the same command goes on from the last checkpoint"
    )


def _address(where: dict[str, Any] | None) -> str:
    return f" (process {where['pid']} on {where['host']})" if where else ""
