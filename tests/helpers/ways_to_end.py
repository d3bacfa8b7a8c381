"""Ways to end a training: each function takes a folder, brings a training in it to its end and returns the end."""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from helpers.repository_copy import environment
from helpers.requires import absent
from helpers.small_disk import fill, small_disk
from helpers.training_process import Training, processes_of, under_way, wait
from helpers.training_process import started as training
from nnlo_lib.state.attempt_outcome import Action, EndReport, decide
from nnlo_lib.state.attempts import Attempt, read_attempts

TIMEOUT_S = 800
RUNTIME_MIN = 60


@dataclass(frozen=True)
class EndedTraining:
    """The end of a training as a user sees it."""

    output: str
    last_line: str  # last line of the output, without numbers that differ from run to run
    status: int
    reason: str  # reason of the last attempt in attempts.jsonl; empty if there is none
    next_attempt: str  # decision of the retry policy on the recorded attempt

    @classmethod
    def of(cls, run: Training, output: str, status: int) -> "EndedTraining":
        """Return the end of the last command of a training."""
        attempts = read_attempts(run.job / "state")[-1:]
        lines = output.strip().splitlines() or [""]
        reason = attempts[0].reason if attempts else ""
        return cls(output, without_numbers(lines[-1], run), status, reason, next_attempt(attempts))


def wait_for_end(run: Training, process: "subprocess.Popen[str]") -> EndedTraining:
    """Wait until a training ends, and check that no process of its folder is left."""
    try:
        output, _ = process.communicate(timeout=TIMEOUT_S)
    finally:
        left = processes_of(run.folder)
        signal_processes(left, signal.SIGKILL)
    assert left == [], output
    return EndedTraining.of(run, output, process.returncode)


def signal_processes(pids: list[int], number: signal.Signals) -> None:
    """Send a signal to the processes that still exist."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def next_attempt(attempts: list[Attempt]) -> str:
    """Return the decision on the next attempt after the last recorded one: none, no, yes, or yes but not always."""
    if not attempts or attempts[-1].is_finished:
        return "none"
    report = EndReport(runtime=RUNTIME_MIN)
    if decide(attempts, report).action is Action.GIVE_UP:
        return "no"
    is_last = decide([*attempts, *attempts], report).action is Action.GIVE_UP
    return "yes, but not twice at one step" if is_last else "yes"


PLACEHOLDERS = {
    r"\b(process|kill) \d+": r"\1 <pid>",
    r"\b\d\.\d{4}\b": "<n>",
    r"\b\d+ MiB": "<n> MiB",
    r"\d{4}-\d\d-\d\dT[\d:.+]+": "<time>",
    r"waited for an? [\w -]+,": "waited for <call>,",  # where the others were at that moment
    r"cannot write \S+:": "cannot write <file>:",  # the first file that found no space
    r"on rank \d": "on rank <n>",
    r"\b\d+ s\b": "<n> s",
}


def without_numbers(line: str, run: Training) -> str:
    """Return a line with placeholders for processes, hosts, seconds and sizes."""
    line = line.replace(str(run.folder), "<folder>")
    line = re.sub(rf"\b{re.escape(socket.gethostname())}\b", "<host>", line)
    for pattern, placeholder in PLACEHOLDERS.items():
        line = re.sub(pattern, placeholder, line)
    return line


WayToEnd = Callable[[Path], EndedTraining]
Disturbance = Callable[[Training, "subprocess.Popen[str]"], object]

NETWORK = """
import os, signal, subprocess, sys, time
import torch

LAST = "1" if "PMI_RANK" in os.environ else None  # the second of two ranks; a single rank has no number

class Net(torch.nn.Module):
    steps = 0

    def __init__(self, classes):
        super().__init__()
        self.layer = torch.nn.Linear(64, classes)

    def forward(self, x):
        if "nnlo_lib.train.rank" in sys.orig_argv and os.environ.get("PMI_RANK") == LAST:
            Net.steps += 1
            if Net.steps == 5:
                {failure}
        return self.layer(x.flatten(1))

def build(shape, classes):
    return Net(classes)
"""


def untouched(*options: str, code: str = "", **changes: object) -> WayToEnd:
    """Return a training, with options of `nnlo run` and changed settings, that ends by itself; `code`: of net.py."""

    def end(folder: Path) -> EndedTraining:
        run = training(folder, **changes)
        (folder / "net.py").write_text(code)
        return wait_for_end(run, run.start(*options))

    return end


def failing(failure: str, **changes: object) -> WayToEnd:
    """Return a training that ends by code of the user, which the last rank runs in its fifth step."""
    code = NETWORK.format(failure=failure)
    return untouched(code=code, **changes, model={"name": "net.py:build"})


def disturbed(disturb: Disturbance, epochs: int = 400, **changes: object) -> WayToEnd:
    """Return a training of some epochs that is disturbed after its first epoch."""

    def end(folder: Path) -> EndedTraining:
        run = training(folder, train={"epochs": epochs}, **changes)
        with under_way(run, 1) as process:
            assert process.poll() is None, process.communicate()[0]
            disturb(run, process)
            return wait_for_end(run, process)

    return end


def signal_rank(rank: int, number: signal.Signals) -> Disturbance:
    return lambda run, _: os.kill(run.pid(rank), number)


def signal_launcher(number: signal.Signals) -> Disturbance:
    return lambda _, process: process.send_signal(number)


def signal_program(name: str, number: signal.Signals) -> Disturbance:
    """Return the disturbance that signals the program of MPI whose name begins with `name`."""

    def disturb(run: Training, _: object) -> None:
        pids = processes_of(run.folder)
        [found] = [pid for pid in pids if Path(f"/proc/{pid}/comm").read_text().startswith(name)]
        os.kill(found, number)

    return disturb


def signal_all(number: signal.Signals) -> Disturbance:
    """Return a disturbance of all processes of the training, as a terminal does by Ctrl-C and by its end."""
    return lambda run, _: signal_processes(processes_of(run.folder), number)


def suspend_all(run: Training, _: object) -> None:
    """Suspend all ranks for longer than the peer time-out, as a scheduler does, and continue them."""
    ranks = [run.pid(rank) for rank in (0, 1)]
    for pid in ranks:
        os.kill(pid, signal.SIGSTOP)
    subprocess.run(["sleep", "23"], check=True)
    for pid in ranks:
        os.kill(pid, signal.SIGCONT)


def move_results(run: Training, _: object) -> None:
    shutil.move(run.folder / "results", run.folder / "elsewhere")


def signalled_early(number: signal.Signals) -> WayToEnd:
    """Return a command that gets a signal as soon as it handles signals, before it has loaded torch."""

    def end(folder: Path) -> EndedTraining:
        run = training(folder)
        process = run.start()

        def handles_signals() -> bool:
            """Return True if the process has a handler for SIGUSR2, which Python does not install by itself."""
            caught = Path(f"/proc/{process.pid}/status").read_text().partition("SigCgt:")[2].split()[0]
            return process.poll() is not None or bool(int(caught, 16) >> (signal.SIGUSR2 - 1) & 1)

        wait("the command handles signals", handles_signals)
        process.send_signal(number)
        return wait_for_end(run, process)

    return end


def killed_command(folder: Path) -> EndedTraining:
    """Kill `nnlo run` without its ranks; the next command records the attempt."""
    run = training(folder, train={"epochs": 400})
    with under_way(run, 1) as process:
        process.kill()
        output, _ = process.communicate(timeout=TIMEOUT_S)
    second = run.start()
    wait("the attempt is recorded", lambda: EndedTraining.of(run, "", 0).reason != "")
    seen = EndedTraining.of(run, output, process.returncode)
    second.terminate()
    wait_for_end(run, second)
    return EndedTraining(output, "(nothing)", seen.status, seen.reason, seen.next_attempt)


def repeated(folder: Path) -> EndedTraining:
    """Run the command again after it has finished."""
    run = training(folder)
    run.finish()
    return wait_for_end(run, run.start())


def second_command(folder: Path) -> EndedTraining:
    """Run the command again while it trains; return the end of the second one."""
    run = training(folder, train={"epochs": 400})
    with under_way(run, 1) as first:
        second = run.start()
        output, _ = second.communicate(timeout=TIMEOUT_S)
        seen = EndedTraining.of(run, output, second.returncode)
        first.terminate()
        wait_for_end(run, first)
    return seen


def near_time_limit(folder: Path) -> EndedTraining:
    """Run the command of the rule `train` in a batch job with a time limit of seconds; its Slurm does not answer."""
    run = training(folder, train={"optimizer": {"lr": 1e30}})
    run.finish(expect=2)
    config, [manifest] = run.job.parent / "config.json", folder.glob("data/*/*/manifest.json")
    config.write_text(config.read_text().replace("1e+30", "0.01").replace('"epochs": 3', '"epochs": 4000'))
    command = [
        sys.executable, "-m", "nnlo_lib.cli", "task", "train", "--config", config, "--manifest", manifest, "--folder",
        run.job.relative_to(folder), "--seed", "0", "--minutes", "0.2",
    ]  # fmt: skip
    (folder / "scontrol").write_text("#!/bin/sh\nexit 1\n")
    (folder / "scontrol").chmod(0o755)
    variables = environment() | {"SLURM_JOB_ID": "7", "PATH": f"{folder}:{os.environ['PATH']}"}
    process = subprocess.Popen(
        command, cwd=folder, env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    return wait_for_end(run, process)


@contextmanager
def results_on_small_disk(folder: Path) -> Iterator[Path]:
    disk = folder / "disk"
    with small_disk(disk):
        (disk / "results").mkdir()
        (folder / "results").symlink_to(disk / "results")
        yield disk


def on_full_disk(folder: Path) -> EndedTraining:
    """Fill the disk of the results after the first epoch; no unfinished checkpoint frees space again."""
    with results_on_small_disk(folder) as disk:
        return disturbed(lambda *_: fill(disk, "ab"), epochs=30, checkpoint={"every": "100 epochs"})(folder)


def on_read_only_disk(folder: Path) -> EndedTraining:
    """Make the disk of the results read-only before the start."""
    with results_on_small_disk(folder) as disk:
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        return untouched()(folder)


def with_small_shared_memory(folder: Path) -> EndedTraining:
    """Train in a mount namespace of its own with 1 MB of /dev/shm, as containers have."""
    run = training(folder)
    script = 'mount -t tmpfs -o size=1m tmpfs /dev/shm && exec "$@"'
    if subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False).returncode:
        absent("only root may mount a small /dev/shm")
    process = subprocess.Popen(
        ["unshare", "-m", "sh", "-c", script, "sh", *run.command],
        cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    return wait_for_end(run, process)
