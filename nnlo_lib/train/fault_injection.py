"""Faults on purpose: what a test or `nnlo chaos` lets happen to a rank at a named place, ordered by NNLO_FAULTS."""

import errno
import json
import os
import signal
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from threading import Lock
from typing import Literal

from nnlo_lib.checkpoint.checkpoint_manifest import MANIFEST_FILE
from nnlo_lib.checkpoint.rank_file import rank_file_name
from nnlo_lib.config.paths import StatePaths
from nnlo_lib.core.failpoints import add_failpoint_handler

FAULTS_ENV_VAR = "NNLO_FAULTS"

FaultAction = Literal["kill", "term", "term_all", "kill_launcher", "truncate", "bitflip", "enospc"]


@dataclass(frozen=True)
class InjectedFault:
    """What strikes a rank when it reaches a place for the `count`-th time in an attempt.

    within: places of any name, from where the attempt goes on, after which it strikes in any case. truncate, bitflip: cut
    what the rank wrote last of a checkpoint, its file or rank 0's manifest, or change a bit in it, and kill the rank.
    enospc: no space left on device, where a checkpoint is written.
    """

    number: int
    place: str
    rank: int
    count: int
    action: FaultAction
    within: int | None = None


@dataclass(frozen=True)
class FaultPlan:
    """All that is to happen in an attempt. folder: of `injected_faults`, `reached_failpoints`; launcher: its process."""

    folder: Path
    launcher: int
    faults: list[InjectedFault]

    @property
    def json_text(self) -> str:
        """What NNLO_FAULTS has to say."""
        return json.dumps(asdict(self), default=str)


def arm_fault_injection(rank: int, state: Path) -> None:
    """Let happen what NNLO_FAULTS orders; simulated ranks are all in one process, known as rank 0."""
    if text := os.environ.pop(FAULTS_ENV_VAR, None):
        fields = json.loads(text)
        faults = [InjectedFault(**fault) for fault in fields["faults"] if fault["rank"] == rank]
        saboteur = FaultInjector(FaultPlan(Path(fields["folder"]), fields["launcher"], faults), rank, state)
        add_failpoint_handler(saboteur.on_failpoint)


def injected_faults(folder: Path) -> list[int]:
    """Return the numbers of the faults that have struck."""
    path = folder / "struck"
    return [int(line) for line in path.read_text().splitlines()] if path.exists() else []


def reached_failpoints(folder: Path, rank: int) -> Counter[str]:
    """Return how often a rank reached each place in the last attempt that finished."""
    return Counter(json.loads((folder / f"places-{rank}.json").read_text()))


class FaultInjector:
    """Counts the places that this process reaches, and strikes."""

    def __init__(self, orders: FaultPlan, rank: int, state: Path) -> None:
        self._orders, self._rank, self._state = orders, rank, state
        self._waiting = list(orders.faults)
        self._count: Counter[str] = Counter()
        self._begun: int | None = None  # places reached before the attempt went on
        self._lots = Random()  # of the fault that strikes
        self._lock = Lock()  # a checkpoint's places are reached by a thread

    def on_failpoint(self, place: str) -> None:
        """Count a place; let happen what is due there, one fault at a time."""
        with self._lock:
            if place == "training.resumed":
                self._begun = self._begun or self._count.total()
            self._count[place] += 1
            due = next((fault for fault in self._waiting if self._is_due(fault, place)), None)
            if due:
                self._waiting.remove(due)
        if place == "training.finish":
            self._write_failpoint_counts()
        if due:
            self._inject(due)

    def _is_due(self, fault: InjectedFault, place: str) -> bool:
        return (fault.place == place and self._count[place] >= fault.count) or self._is_late(fault)

    def _is_late(self, fault: InjectedFault) -> bool:
        if fault.within is None or self._begun is None:
            return False
        return self._count.total() - self._begun >= fault.within

    def _write_failpoint_counts(self) -> None:
        (self._orders.folder / f"places-{self._rank}.json").write_text(json.dumps(self._count))

    def _inject(self, fault: InjectedFault) -> None:
        with (self._orders.folder / "struck").open("a") as file:
            file.write(f"{fault.number}\n")
        self._lots = Random(fault.number)
        getattr(self, f"_{fault.action}")()

    def _kill(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def _term(self) -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    def _term_all(self) -> None:
        os.kill(self._orders.launcher, signal.SIGTERM)

    def _kill_launcher(self) -> None:
        os.kill(self._orders.launcher, signal.SIGKILL)

    def _truncate(self) -> None:
        path = self._newest()
        os.truncate(path, self._lots.randrange(path.stat().st_size))
        self._kill()

    def _bitflip(self) -> None:
        path = self._newest()
        with path.open("r+b") as file:
            file.seek(self._lots.randrange(path.stat().st_size))
            byte = file.read(1)[0]
            file.seek(-1, os.SEEK_CUR)
            file.write(bytes([byte ^ 1 << self._lots.randrange(8)]))
        self._kill()

    def _enospc(self) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _newest(self) -> Path:
        """Return what this rank wrote last of a checkpoint, whole or not."""
        names = [rank_file_name(self._rank), *([MANIFEST_FILE] if self._rank == 0 else [])]
        files = [path for name in names for path in StatePaths(self._state).checkpoints.glob(f"*/{name}")]
        return max(files, key=lambda path: path.stat().st_mtime_ns)
