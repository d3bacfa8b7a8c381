"""One finished training: the three files in its folder, read and checked."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from io import StringIO
from pathlib import Path
from typing import Any

import pandas as pd

from nnlo_lib.errors import UserError
from nnlo_lib.state.tally import Tally

SUMMARY_KEYS = ("run", "seed", "config", "seconds", "samples_per_second", "bytes_sent", "ranks", "epochs")
EVALUATION_KEYS = ("samples",)
HISTORY_COLUMNS = ("epoch", "seconds")


@dataclass(frozen=True)
class Job:
    """A run with a seed (and a fold), its summary and its evaluation on the test split."""

    folder: Path
    summary: dict[str, Any]
    evaluation: dict[str, Any]

    @classmethod
    def load(cls, folder: Path) -> "Job":
        """Read a job folder. Raises UserError naming the file that is missing, cut short or incomplete."""
        return cls(
            folder,
            _read_object(folder / "summary.json", SUMMARY_KEYS),
            _read_object(folder / "evaluation.json", EVALUATION_KEYS),
        )

    @property
    def run(self) -> str:
        """Name of the run."""
        return str(self.summary["run"])

    @property
    def key(self) -> tuple[str, int, int | None]:
        """Run, seed and fold: what tells one job from another."""
        return self.run, self.summary["seed"], self.summary.get("fold")

    @property
    def roles(self) -> list[str]:
        """What each rank did; workers all, unless the summary says otherwise."""
        return self.summary.get("roles") or ["worker"] * self.summary["ranks"]

    @property
    def transport(self) -> str:
        """How the ranks talked; `simulated` means that seconds are virtual."""
        return str(self.setting("parallel").get("transport", "mpi"))

    @property
    def messages(self) -> int | None:
        """Messages that all ranks sent, where they were counted."""
        counts = self.summary.get("messages_sent")
        return sum(counts.values()) if counts else None

    def setting(self, section: str) -> dict[str, Any]:
        """Return a section of the resolved configuration, empty where there is none."""
        return self.summary["config"].get(section) or {}

    @cached_property
    def tally(self) -> Tally | None:
        """What its attempts come to, where they were recorded."""
        return Tally.read(self.folder / "state", self.summary)

    @cached_property
    def history(self) -> pd.DataFrame:
        """One row per epoch. Raises UserError if the file is missing or cut short."""
        path = self.folder / "history.csv"
        frame = read_table(path, HISTORY_COLUMNS)
        if frame.empty or frame["epoch"].iloc[-1] < self.summary["epochs"]:
            raise UserError(f"{path} ends before epoch {self.summary['epochs']}; train this job again")
        return frame


def load_jobs(folders: Iterable[Path]) -> list[Job]:
    """Read job folders in the order given. Raises UserError if there are none, or one job twice."""
    jobs: dict[tuple[str, int, int | None], Job] = {}
    for job in map(Job.load, folders):
        if job.key in jobs:
            raise UserError(f"{job.folder} and {jobs[job.key].folder} hold the same run, seed and fold")
        jobs[job.key] = job
    if not jobs:
        raise UserError("no job folder given; expected results/<experiment>/<run>/seed-<s>")
    return list(jobs.values())


def by_run(jobs: Iterable[Job]) -> dict[str, list[Job]]:
    """Group jobs by run, runs in order of first appearance."""
    groups: dict[str, list[Job]] = {}
    for job in jobs:
        groups.setdefault(job.run, []).append(job)
    return groups


def read_table(path: Path, columns: Sequence[str]) -> pd.DataFrame:
    """Read a CSV file whole. Raises UserError if it is missing, cut short or lacks one of `columns`."""
    text = read_text(path)
    if not text.endswith("\n"):
        raise UserError(f"{path} is cut short: its last line does not end")
    try:
        frame = pd.read_csv(
            StringIO(text), na_values=_absent(text), keep_default_na=False, dtype={"run": str}
        )
    except ValueError as error:
        raise UserError(f"{path} is not a table: {error}") from error
    _require(path, columns, frame.columns)
    return frame


def _absent(text: str) -> dict[str, list[str]]:
    """Say what stands for an absent value in each column but `run`: a run may be called NA."""
    header = text.partition("\n")[0].split(",")
    return {name: ["", "nan", "NaN"] for name in header if name != "run"}


def read_text(path: Path) -> str:
    """Read a text file. Raises UserError naming it."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read {path}: {error}") from error


def _read_object(path: Path, keys: Sequence[str]) -> dict[str, Any]:
    try:
        content = json.loads(read_text(path))
    except json.JSONDecodeError as error:
        raise UserError(f"{path} is cut short or damaged: {error}") from error
    if not isinstance(content, dict):
        raise UserError(f"{path} does not hold a JSON object")
    _require(path, keys, content)
    return content


def _require(path: Path, wanted: Sequence[str], present: Iterable[str]) -> None:
    missing = [name for name in wanted if name not in set(present)]
    if missing:
        raise UserError(f"{path} lacks {', '.join(missing)}")
