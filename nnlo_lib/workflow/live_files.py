"""Files of trainings that run, read again only if they have changed: settings, progress, waiting, GPU use, leases."""

import csv
import os
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

from nnlo_lib.checkpoint.checkpoint_manifest import checkpoint_folders
from nnlo_lib.config.metrics import metric_column
from nnlo_lib.config.paths import RunPaths, StatePaths
from nnlo_lib.core.atomic_file import load_json
from nnlo_lib.state.lease import OWNER_TIMEOUT_S, LeaseOwner, OwnerMonitor
from nnlo_lib.state.training_records import read_step_marker

GPU_COLUMN = 7  # of state/observed/*/monitor-<rank>.csv
TAIL_BYTES = 500  # longer than a row of that file
T = TypeVar("T")


@dataclass
class History:
    """One metric of a table that grows; each look reads what was appended."""

    inode: int = 0
    size: int = 0
    metric: str = ""
    values: list[float] = field(default_factory=list)
    last: dict[str, Any] = field(default_factory=dict)

    def read(self, path: Path, wanted: Sequence[str]) -> None:
        """Read the new rows; `wanted` are names of metrics, the best first. A restart replaces the file."""
        with path.open("rb") as file:
            stat = os.fstat(file.fileno())
            if stat.st_ino != self.inode or stat.st_size < self.size:
                self.inode, self.size, self.metric, self.values, self.last = stat.st_ino, 0, "", [], {}
            if stat.st_size == self.size:
                return
            file.seek(self.size)
            text = file.read()
        end = text.rfind(b"\n") + 1  # the last row may be half written
        self.size += end
        for line in text[:end].splitlines():
            with suppress(ValueError):
                self.last = load_json(line)
                self.metric = self.metric or next((name for name in wanted if name in self.last), "")
                if isinstance(value := self.last.get(self.metric), int | float):
                    self.values.append(value)


@dataclass(frozen=True)
class LeaseView:
    """The lease of a launcher."""

    owner: LeaseOwner
    beat: float  # time of the last heartbeat on the clock of the file system, in seconds since 1970
    silence_s: float  # seconds since the last heartbeat
    # when a look has seen the heartbeat change, in seconds of time.monotonic; None if none has
    seen_at: float | None
    is_of_copy: bool  # whether the lease was copied from another folder

    @property
    def is_alive(self) -> bool:
        """Whether the launcher runs, as far as this host can see."""
        return not (self.is_of_copy or self.owner.is_dead or self.silence_s > OWNER_TIMEOUT_S)


class StepPace(NamedTuple):
    """Last step, seconds per step, and seconds since the last step; None if unknown."""

    step: int
    seconds: float | None = None
    silence_s: float | None = None


class LiveFiles:
    """Reader of the files of many trainings.

    Args:
        clock: seconds since 1970.
        monotonic: seconds of a clock that never jumps.
    """

    def __init__(
        self, clock: Callable[[], float] = time.time, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._clock, self._monotonic = clock, monotonic
        self._contents: dict[Path, tuple[tuple[int, ...], Any]] = {}
        self._histories: dict[Path, History] = {}
        self._heartbeats: dict[Path, LeaseView] = {}

    def read(self, path: Path, parse: Callable[[Path], T]) -> T | None:
        """Return a parsed file; None if it is missing or damaged."""
        try:
            stat = path.stat()
            version = stat.st_mtime_ns, stat.st_size, stat.st_ino
            known = self._contents.get(path)
            if known is None or known[0] != version:
                known = self._contents[path] = version, parse(path)
            return cast(T, known[1])
        except (OSError, ValueError, KeyError, TypeError, struct.error):
            return None

    def read_json(self, path: Path) -> Any:
        """Return a JSON file; None if it is missing or damaged."""
        return self.read(path, lambda path: load_json(path.read_bytes()))

    def heartbeat(self, state: StatePaths) -> LeaseView | None:
        """Return the lease in `state/`; None if there is none."""
        try:
            # The timeout is not used: the lease is read once and not polled.
            lease, inode = OwnerMonitor(state.lease, 0.0), state.folder.stat().st_ino
        except OSError:
            self._heartbeats.pop(state.folder, None)
            return None
        owner, beat, now = lease.lease_owner, lease.last_heartbeat, self._monotonic()
        before = self._heartbeats.get(state.folder)
        seen_at = None
        if before and before.owner == owner:
            seen_at = now if beat != before.beat else before.seen_at
        # A heartbeat that was seen needs no clock: the clocks of this host and of the file server may differ.
        silence = max(0.0, self._clock() - beat) if seen_at is None else now - seen_at
        # A copy may have new times, but no launcher renews its lease.
        is_elsewhere = owner.inode not in (0, inode) and owner.folder != str(state.folder.resolve())
        is_of_copy = is_elsewhere and seen_at is None
        found = self._heartbeats[state.folder] = LeaseView(owner, beat, silence, seen_at, is_of_copy)
        return found

    def history(self, state: StatePaths, settings: Mapping[str, Any]) -> History:
        """Return the metric by which the training is judged; `settings` are those of its run."""
        objective = ((settings.get("search") or {}).get("objective") or {}).get("metric")
        metrics = [f"val_{metric_column(name)}" for name in settings.get("metrics") or ()]
        found = self._histories.setdefault(state.folder, History())
        with suppress(OSError):
            found.read(state.history, [*filter(None, [objective]), *metrics, "val_loss", "train_loss"])
        return found

    def summary_shares(self, paths: RunPaths) -> dict[str, float | None]:
        """Return share of waiting and GPU use of a finished training."""

        def parse(path: Path) -> dict[str, float | None]:
            summary = load_json(path.read_bytes())
            use = (summary.get("monitor") or {}).get("gpu_percent", {}).get("mean")
            return {"wait": _share_of_waiting(summary["seconds"]), "gpu_percent": use}

        return self.read(paths.summary, parse) or {}

    def waiting(self, state: StatePaths) -> float | None:
        """Return the share of waiting of rank 0 up to the newest checkpoint; None without one."""
        newest = checkpoint_folders(state.checkpoints)[-1:] if state.checkpoints.is_dir() else []
        return self.read(newest[0] / "rank-0.safetensors", _waiting_of_rank) if newest else None

    def gpu_percent(self, state: StatePaths) -> float | None:
        """Return the mean use of the GPUs at the last measurement of each rank; None without measurements."""
        files = list(state.observed.glob("*/monitor-*.csv")) if state.observed.is_dir() else []
        used = [use for path in files if (use := self.read(path, _last_gpu_use)) is not None]
        return sum(used) / len(used) if used else None

    def pace(self, state: StatePaths, since: str) -> StepPace:
        """Return the pace of the attempt that has run since an ISO time."""
        first, reached = read_step_marker(state.folder)
        with suppress(OSError):
            stepped = state.step.stat().st_mtime
            elapsed = stepped - datetime.fromisoformat(since).timestamp()
            each = elapsed / (reached - first) if reached > first and elapsed > 0 else None
            return StepPace(reached, each, max(0.0, self._clock() - stepped))
        return StepPace(reached)


def _share_of_waiting(seconds: Mapping[str, float]) -> float | None:
    return seconds["wait"] / seconds["total"] if seconds["total"] > 0 else None


def _waiting_of_rank(path: Path) -> float | None:
    # Without safetensors, which imports torch: 8 bytes with the length of a JSON header.
    with path.open("rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header = load_json(file.read(length))
    return _share_of_waiting(load_json(header["__metadata__"]["progress"])["stopwatches"][0]["seconds"])


def _last_gpu_use(path: Path) -> float | None:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - TAIL_BYTES))
        rows = list(csv.reader(file.read().decode(errors="replace").splitlines()))
    return float(rows[-1][GPU_COLUMN]) if rows and rows[-1][GPU_COLUMN] else None
