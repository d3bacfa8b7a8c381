"""Injection of faults into a rank at failpoints, for tests and benchmarks/chaos.py; configured by NNLO_FAULTS."""

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
from nnlo_lib.core.failpoints import FAILPOINT_VARIABLE, add_failpoint_handler

FAULTS_ENV_VAR = "NNLO_FAULTS"

FaultAction = Literal["kill", "term", "term_all", "kill_launcher", "truncate", "bitflip", "enospc"]


@dataclass(frozen=True)
class InjectedFault:
    """A fault that is injected when a rank reaches a failpoint for the `count`-th time in an attempt."""

    number: int  # number of the fault, also the seed of its random choices
    place: str  # name of the failpoint
    rank: int
    count: int
    # `kill` and `term` send SIGKILL and SIGTERM to the rank, `kill_launcher` and `term_all` to the launcher. `truncate`
    # shortens and `bitflip` flips one bit of the rank's newest checkpoint file (its rank file or, on rank 0, the
    # manifest); then they kill the rank. `enospc` raises the OSError "no space left on device", at failpoints that
    # write a checkpoint.
    action: FaultAction
    # if set, the fault is injected at the latest when the rank has reached this number of failpoints of any name since
    # the attempt resumed
    within: int | None = None


@dataclass(frozen=True)
class FaultPlan:
    """The faults of an attempt."""

    folder: Path  # folder of the files that `injected_faults` and `reached_failpoints` read
    launcher: int
    faults: list[InjectedFault]

    @property
    def variables(self) -> dict[str, str]:
        """Variables of the environment in which ranks arm the plan: this file's function, and the plan as JSON."""
        function = f"{Path(__file__).resolve()}:{arm_fault_injection.__name__}"
        return {FAILPOINT_VARIABLE: function, FAULTS_ENV_VAR: json.dumps(asdict(self), default=str)}


def arm_fault_injection(rank: int, state: Path) -> None:
    """Inject the faults of NNLO_FAULTS, if set; simulated ranks share one process, which counts as rank 0."""
    # Removed from the environment, so that child processes and later tasks of this process inject no faults.
    if text := os.environ.pop(FAULTS_ENV_VAR, None):
        fields = json.loads(text)
        faults = [InjectedFault(**fault) for fault in fields["faults"] if fault["rank"] == rank]
        injector = FaultInjector(FaultPlan(Path(fields["folder"]), fields["launcher"], faults), rank, state)
        add_failpoint_handler(injector.on_failpoint)


def injected_faults(folder: Path) -> list[int]:
    """Return the numbers of the faults that were injected."""
    path = folder / "struck"
    return [int(line) for line in path.read_text().splitlines()] if path.exists() else []


def reached_failpoints(folder: Path, rank: int) -> Counter[str]:
    """Return how often a rank reached each failpoint in the last attempt that finished."""
    return Counter(json.loads((folder / f"places-{rank}.json").read_text()))


class FaultInjector:
    """Counts the failpoints that this process reaches and injects the faults that are due."""

    def __init__(self, plan: FaultPlan, rank: int, state: Path) -> None:
        self._plan, self._rank, self._state = plan, rank, state
        self._waiting = list(plan.faults)
        self._count: Counter[str] = Counter()
        self._begun: int | None = None  # number of failpoints reached before the attempt resumed
        self._lock = Lock()  # A thread that writes a checkpoint reaches failpoints, too.

    def on_failpoint(self, place: str) -> None:
        """Count a failpoint and inject the first fault that is due."""
        with self._lock:
            if place == "training.resumed":
                # Simulated ranks share this process; the first one that resumes starts the count.
                self._begun = self._begun or self._count.total()
            self._count[place] += 1
            due = next((fault for fault in self._waiting if self._is_due(fault, place)), None)
            if due:
                self._waiting.remove(due)
        if place == "training.finish":
            (self._plan.folder / f"places-{self._rank}.json").write_text(json.dumps(self._count))
        if due:
            # Recorded before the action, which may end this process.
            with (self._plan.folder / "struck").open("a") as file:
                file.write(f"{due.number}\n")
            self._inject(due)

    def _is_due(self, fault: InjectedFault, place: str) -> bool:
        # Not `==`: if several faults are due at once, the later ones are injected at the next opportunities.
        if fault.place == place and self._count[place] >= fault.count:
            return True
        if fault.within is None or self._begun is None:
            return False
        return self._count.total() - self._begun >= fault.within

    def _inject(self, fault: InjectedFault) -> None:
        random = Random(fault.number)
        if fault.action == "enospc":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if fault.action in ("truncate", "bitflip"):
            path = self._newest()
            content = bytearray(path.read_bytes())
            place = random.randrange(len(content))
            if fault.action == "truncate":
                del content[place:]
            else:
                content[place] ^= 1 << random.randrange(8)
            path.write_bytes(content)
        to_launcher = fault.action in ("term_all", "kill_launcher")
        number = signal.SIGTERM if fault.action in ("term", "term_all") else signal.SIGKILL
        os.kill(self._plan.launcher if to_launcher else os.getpid(), number)

    def _newest(self) -> Path:
        """Return the newest checkpoint file of this rank, complete or not."""
        names = [rank_file_name(self._rank), *([MANIFEST_FILE] if self._rank == 0 else [])]
        files = [path for name in names for path in StatePaths(self._state).checkpoints.glob(f"*/{name}")]
        return max(files, key=lambda path: path.stat().st_mtime_ns)
