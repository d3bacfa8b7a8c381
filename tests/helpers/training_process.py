"""Trainings on the embedded digits by `nnlo run` in a separate folder, as a user runs them."""

import functools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml

from helpers import fork_server
from helpers.repository_copy import environment
from nnlo_lib.train.rank_process import StopFlag

BASE = {
    "name": "t",
    "model": {"name": "simplecnn"},
    "checkpoint": {"every": "1 epoch"},
    "train": {"epochs": 3, "batch_size": 16, "optimizer": {"name": "sgd", "lr": 0.02, "momentum": 0.9}},
}
# `bytes` is included because a resume repeats the broadcast of the start.
TIMINGS = ("seconds", "samples_per_second", "bytes")


@dataclass(frozen=True)
class Training:
    """One `nnlo run` of an experiment in `folder`; `forked`: run by the fork server instead of a new interpreter."""

    folder: Path
    run: str
    forked: bool = True

    @property
    def job(self) -> Path:
        return self.folder / f"results/t/{self.run}/seed-0"

    @property
    def command(self) -> list[str]:
        nnlo = fork_server.nnlo() if self.forked else [str(Path(sys.executable).with_name("nnlo"))]
        return [*nnlo, "run", "t.yaml"]

    def start(self, *options: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [*self.command, *options],
            cwd=self.folder,
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def finish(self, *options: str, expect: int = 0) -> str:
        done = self.start(*options)
        said, _ = done.communicate(timeout=850)
        assert done.returncode == expect, said
        return said

    @property
    def weights(self) -> bytes:
        return (self.job / "model.safetensors").read_bytes()

    @property
    def history(self) -> list[dict[str, float]]:
        """Metrics of each epoch, without the TIMINGS that an interruption may change."""
        return [{key: value for key, value in row.items() if key not in TIMINGS} for row in self.rows]

    @property
    def bytes_sent(self) -> list[float]:
        """Total bytes sent by all ranks up to the end of each epoch."""
        return [row["bytes"] for row in self.rows]

    @property
    def rows(self) -> list[dict[str, float]]:
        return [json.loads(line) for line in (self.job / "state/history.jsonl").read_text().splitlines()]

    def pid(self, rank: int) -> int:
        return int(json.loads((self.job / f"state/ranks/{rank}").read_text())["pid"])

    def epochs_done(self) -> int:
        path = self.job / "state/history.jsonl"
        return path.read_text().count("\n") if path.exists() else 0


def merged(base: dict, changes: dict) -> dict:
    """Merge settings recursively; changes with another `name` replace the section."""
    if changes.get("name", base.get("name")) != base.get("name"):
        return changes
    both = {
        key: merged(base[key], changes[key])
        for key in base.keys() & changes.keys()
        if isinstance(base[key], dict)
    }
    return base | changes | both


def training(
    folder: Path,
    algorithm: str | dict = "allreduce",
    ranks: int = 2,
    forked: bool = True,
    **changes: object,
) -> Training:
    """Write the experiment of one training into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    algorithm = {"name": algorithm} if isinstance(algorithm, str) else algorithm
    settings = merged(BASE | {"algorithm": algorithm, "parallel": {"ranks": ranks}}, changes)
    (folder / "t.yaml").write_text(yaml.safe_dump(settings))
    return Training(folder, str(algorithm["name"]), forked)


started = functools.partial(training, forked=False)  # for tests of process behavior


def wait(what: str, condition: Callable[[], bool], seconds: float = 300) -> None:
    """Poll `condition` until it holds; fail after `seconds` with the description `what`."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"waited {seconds} s for: {what}"
        time.sleep(0.02)


@contextmanager
def under_way(run: Training, epochs: int) -> Iterator["subprocess.Popen[str]"]:
    """Start a training; yield its process after some epochs; kill it on exit."""
    process = run.start()
    try:
        wait(f"{epochs} epochs", lambda: run.epochs_done() >= epochs or process.poll() is not None)
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
        process.wait(300)


def processes_of(folder: Path) -> list[int]:
    """Return the ids of all live processes with `folder` as working directory."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and Path(os.readlink(entry / "cwd")) == folder:
                state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
                found += [int(entry.name)] if state != "Z" else []
        except OSError:
            continue
    return found


class StopAfter(StopFlag):
    """Stop flag that requests a stop after `calls` calls, counted over all ranks."""

    def __init__(self, calls: int) -> None:
        super().__init__()
        self._left = calls

    def __call__(self) -> bool:
        self._left -= 1
        return self._left < 0
