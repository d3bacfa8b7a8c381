"""Searches with drivers killed at random times, with or without their child processes, run to the end."""

import json
import os
import random
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import yaml

from helpers.repository_copy import REPOSITORY, environment
from helpers.training_process import TIMINGS, processes_of, wait

NNLO, SNAKEMAKE = (str(Path(sys.executable).with_name(name)) for name in ("nnlo", "snakemake"))
PATIENCE = 600  # seconds for a driver that is not killed
SETTINGS = {
    "model": {"name": "simplemlp", "args": {"hidden": 16, "layers": 1}},
    "parallel": {"ranks": 1},
    "train": {"epochs": 8, "batch_size": 16, "optimizer": {"name": "sgd"}},
    "checkpoint": {"every": "1 epoch"},
    "search": {
        "space": {
            "train.optimizer.lr": {"log_uniform": [1e-3, 1e-1]},
            "train.optimizer.momentum": [0.0, 0.9],
        },
        "method": {"name": "auto", "initial": 2},
        "trials": 5,
        "parallel": 2,
        "order": "fixed",
    },
}
COMMANDS = {
    "local": [NNLO, "search", "{name}.yaml"],
    "submitit": [NNLO, "search", "{name}.yaml", "--executor", "submitit"],
    "mpi": [NNLO, "search", "{name}.yaml", "--executor", "mpi"],
    "dag": [
        SNAKEMAKE, "results/{name}/search/trials.csv", "--configfile", "{name}.yaml", "--profile", "profiles/local",
        "--cores", "2", "--nolock",
    ],
}  # fmt: skip
WITHOUT_SLURM = ("local", "mpi", "dag")

EPOCHS = SETTINGS["train"]["epochs"] * SETTINGS["search"]["trials"]


@dataclass(frozen=True)
class Kill:
    """Kill of a driver some seconds after all trials have trained `epochs`; `whole`: of all processes of the search."""

    epochs: int
    seconds: float
    whole: bool


def kills(count: int, seed: int) -> list[Kill]:
    """Draw kills: about 30% during the start of a driver or its trainings, the others uniformly over the epochs."""
    draw = random.Random(seed)
    points = sorted(draw.randrange(EPOCHS) for _ in range(count))
    starting = [draw.random() < 0.3 for _ in points]
    return [
        Kill(0 if early else point, draw.uniform(0, 4 if early else 0.5), draw.random() < 0.7)
        for point, early in zip(points, starting, strict=True)
    ]


@dataclass(frozen=True)
class Search:
    """One search in a folder; several searches may share the folder."""

    folder: Path
    name: str
    executor: str
    settings: dict = field(default_factory=lambda: SETTINGS)
    surroundings: dict[str, str] = field(default_factory=environment)

    def prepare(self) -> "Search":
        """Write the experiment file and link the folders of the repository that Snakemake needs."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for name in ("workflow", "profiles", "scripts"):
            if not (self.folder / name).exists():
                (self.folder / name).symlink_to(REPOSITORY / name)
        (self.folder / f"{self.name}.yaml").write_text(yaml.safe_dump({"name": self.name, **self.settings}))
        return self

    def run(self, *disturbances: Kill) -> int:
        """Run the search to its end with the given kills; return the number of kills before it ended."""
        for done, kill in enumerate(disturbances):
            if self._survives(kill):
                return done
        process = self.start()
        try:
            assert process.wait(PATIENCE) == 0, self.said
        finally:
            end(self.folder)
        return len(disturbances)

    def _survives(self, kill: Kill) -> bool:
        """Start the driver and kill it unless it ends first; return True if it ended."""
        process = self.start()
        wait("epochs", lambda: self.epochs_done >= kill.epochs or process.poll() is not None, PATIENCE)
        try:
            assert process.wait(kill.seconds) == 0, self.said
            return True
        except subprocess.TimeoutExpired:
            process.kill()
            if kill.whole:
                end(self.folder)
            process.wait()
            return False

    def start(self) -> "subprocess.Popen[bytes]":
        """Start a driver in its own process group, as a shell does; its output is appended to the log."""
        command = [word.format(name=self.name) for word in COMMANDS[self.executor]]
        with (self.folder / f"{self.name}.said").open("ab") as said:
            return subprocess.Popen(
                command, cwd=self.folder, env=self.surroundings, stdout=said, stderr=said,
                stdin=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip

    @property
    def epochs_done(self) -> int:
        """Number of epochs trained by all trials."""
        return sum(path.read_text().count("\n") for path in self._trials.glob("*/fold-*/state/history.jsonl"))

    @property
    def said(self) -> str:
        """The last 3000 characters of the drivers' output."""
        return (self.folder / f"{self.name}.said").read_text()[-3000:]

    @property
    def trials(self) -> list[str]:
        """Text of the trial files: points, decisions, and the tasks pending at each decision."""
        return [path.read_text() for path in sorted(self._trials.glob("*.json"))]

    @property
    def results(self) -> dict[str, object]:
        """Status and metrics of each fold task, without the timings that an interruption may change."""
        found = {}
        for path in sorted(self._trials.glob("*/fold-*/epochs-*.json")):
            result = json.loads(path.read_text())
            rows = [{key: row[key] for key in row if key not in TIMINGS} for row in result["rows"]]
            found[str(path.relative_to(self._trials))] = (result["status"], rows)
        return found

    @property
    def trained_twice(self) -> list[str]:
        """Folds with an epoch that was trained twice, trained after a result, or lost."""
        return [str(fold) for fold in sorted(self._trials.glob("*/fold-*")) if not self._trained_once(fold)]

    @property
    def interrupted(self) -> int:
        """Number of attempts that ended before they finished."""
        return sum(each["reason"] != "finished" for each in self.attempts)

    @property
    def attempts(self) -> list[dict]:
        """Records of all attempts of all folds."""
        return [each for fold in sorted(self._trials.glob("*/fold-*")) for each in _rows(fold, "attempts")]

    def _trained_once(self, fold: Path) -> bool:
        """Return True if each attempt resumed from the last save and the ledger lists every epoch exactly once."""
        attempts = _rows(fold, "attempts")
        goes_on = all(after["from"] == before["saved"] for before, after in pairwise(attempts))
        reasons = [each["reason"] for each in attempts if each["reached"] > each["from"]]
        once = reasons.count("finished") <= 1 and "finished" not in reasons[:-1]
        ledger = [(row["epoch"], row["missed"], row["repeated"]) for row in _rows(fold, "ledger")]
        return (
            goes_on and once and ledger == [(n, 0, 0) for n in range(1, self.settings["train"]["epochs"] + 1)]
        )

    @property
    def _trials(self) -> Path:
        return self.folder / f"results/{self.name}/search/trials"


def end(folder: Path) -> None:
    """Kill all processes with `folder` as working directory, repeatedly until no process remains."""

    def nobody() -> bool:
        left = processes_of(folder)
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return not left

    wait("all processes are gone", nobody)


def _rows(fold: Path, name: str) -> list[dict]:
    path = fold / f"state/{name}.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
