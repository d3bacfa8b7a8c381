"""Faults on purpose: what a test or `nnlo chaos` lets happen to a rank at a named place, ordered by NNLO_FAULTS."""

import errno
import json
import os
import signal
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import wraps
from pathlib import Path
from random import Random
from threading import Lock
from typing import Any, Literal

from nnlo_lib.checkpoint.manifest import MANIFEST
from nnlo_lib.checkpoint.part import file_of
from nnlo_lib.comm.communicator import Communicator, Request
from nnlo_lib.failpoints import failpoint, on_reach

VARIABLE = "NNLO_FAULTS"
EXCHANGES = (
    "arrived", "barrier", "broadcast", "deal", "exchange", "gather", "iallreduce", "probe", "receive", "send",
    "split", "ticket",
)  # fmt: skip

Action = Literal["kill", "term", "term_all", "kill_launcher", "torn", "flipped", "full"]


@dataclass(frozen=True)
class Fault:
    """What strikes a rank when it reaches a place for the `count`-th time in an attempt.

    within: places of any name, from where the attempt goes on, after which it strikes in any case. torn, flipped: cut
    what the rank wrote last of a checkpoint, its file or rank 0's manifest, or change a bit in it, and kill the rank.
    full: no space left on device, where a checkpoint is written.
    """

    number: int
    place: str
    rank: int
    count: int
    action: Action
    within: int | None = None


@dataclass(frozen=True)
class Orders:
    """All that is to happen in an attempt. folder: for what `struck` and `places` return; launcher: its process."""

    folder: Path
    launcher: int
    faults: list[Fault]

    @property
    def text(self) -> str:
        """What NNLO_FAULTS has to say."""
        return json.dumps(asdict(self), default=str)


def arm(comm: Communicator, state: Path) -> None:
    """Let happen what NNLO_FAULTS orders; simulated ranks are all in one process, known as rank 0."""
    if text := os.environ.pop(VARIABLE, None):
        fields = json.loads(text)
        faults = [Fault(**fault) for fault in fields["faults"] if fault["rank"] == comm.rank]
        saboteur = Saboteur(Orders(Path(fields["folder"]), fields["launcher"], faults), comm.rank, state)
        _watch(type(comm))
        on_reach(saboteur.reached)


def struck(folder: Path) -> list[int]:
    """Return the numbers of the faults that have struck."""
    path = folder / "struck"
    return [int(line) for line in path.read_text().splitlines()] if path.exists() else []


def places(folder: Path, rank: int) -> Counter[str]:
    """Return how often a rank reached each place in the last attempt that finished."""
    return Counter(json.loads((folder / f"places-{rank}.json").read_text()))


class Saboteur:
    """Counts the places that this process reaches, and strikes."""

    def __init__(self, orders: Orders, rank: int, state: Path) -> None:
        self._orders, self._rank, self._state = orders, rank, state
        self._waiting = list(orders.faults)
        self._count: Counter[str] = Counter()
        self._begun: int | None = None  # places reached before the attempt went on
        self._lots = Random()  # of the fault that strikes
        self._lock = Lock()  # a checkpoint's places are reached by a thread

    def reached(self, place: str) -> None:
        """Count a place; let happen what is due there, one fault at a time."""
        with self._lock:
            if place == "training.resumed":
                self._begun = self._begun or self._count.total()
            self._count[place] += 1
            due = next((fault for fault in self._waiting if self._is_due(fault, place)), None)
            if due:
                self._waiting.remove(due)
        if place == "training.finish":
            self._tell_places()
        if due:
            self._strike(due)

    def _is_due(self, fault: Fault, place: str) -> bool:
        return (fault.place == place and self._count[place] >= fault.count) or self._is_late(fault)

    def _is_late(self, fault: Fault) -> bool:
        if fault.within is None or self._begun is None:
            return False
        return self._count.total() - self._begun >= fault.within

    def _tell_places(self) -> None:
        (self._orders.folder / f"places-{self._rank}.json").write_text(json.dumps(self._count))

    def _strike(self, fault: Fault) -> None:
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

    def _torn(self) -> None:
        path = self._newest()
        os.truncate(path, self._lots.randrange(path.stat().st_size))
        self._kill()

    def _flipped(self) -> None:
        path = self._newest()
        with path.open("r+b") as file:
            file.seek(self._lots.randrange(path.stat().st_size))
            byte = file.read(1)[0]
            file.seek(-1, os.SEEK_CUR)
            file.write(bytes([byte ^ 1 << self._lots.randrange(8)]))
        self._kill()

    def _full(self) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _newest(self) -> Path:
        """Return what this rank wrote last of a checkpoint, whole or not."""
        names = [file_of(self._rank), *([MANIFEST] if self._rank == 0 else [])]
        files = [path for name in names for path in self._state.glob(f"checkpoints/*/{name}")]
        return max(files, key=lambda path: path.stat().st_mtime_ns)


def _watch(transport: type[Communicator]) -> None:
    """Make each exchange a place, on the way in and on the way out."""
    for name in EXCHANGES:
        setattr(transport, name, _told(f"exchange.{name}", getattr(transport, name)))


def _told(place: str, call: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(call)
    def told(*given: Any, **named: Any) -> Any:
        failpoint(place)
        result = call(*given, **named)
        failpoint(place)
        return Request(_told("exchange.wait", result.wait)) if isinstance(result, Request) else result

    return told
