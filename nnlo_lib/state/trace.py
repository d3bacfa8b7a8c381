"""What a rank did when, in a file of its own for each attempt; all of them as one Chrome trace."""

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Any, TextIO

from nnlo_lib.data.atomic import replacing

MOST = 200_000  # details that a rank tells in one attempt
GLIMPSE = 10e-6  # seconds: shorter details are not told


@dataclass(frozen=True)
class Part:
    """Whose part of a trace it is. shift: from the rank's clock to seconds since 1970, unless the clock is virtual."""

    rank: int
    attempt: int
    role: str
    host: str
    start: float
    shift: float
    virtual: bool

    @property
    def file(self) -> str:
        """Name of its file."""
        return f"trace-{self.rank:05d}-{self.attempt:04d}.jsonl"


class Trace:
    """Writes spans as they end; a disk that refuses is no reason to stop. fine: whether details are wanted."""

    def __init__(self, folder: Path, part: Part, fine: bool) -> None:
        self._file: TextIO | None = None
        self._left = MOST if fine else 0
        with suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            self._file = (folder / part.file).open("w", buffering=1 << 16)
            self._file.write(json.dumps(asdict(part)) + "\n")
            self._file.flush()

    def span(self, name: str, phase: str, start: float, end: float) -> None:
        """Tell of a span (seconds on the rank's clock) that holds everything told since it began; keep all on disk."""
        self._write(_line(name, phase, start, end))
        with suppress(OSError):
            if self._file is not None:
                self._file.flush()

    def detail(self, name: str, phase: str, start: float, end: float) -> None:
        """Tell of a span inside others, up to MOST of them."""
        if self._left and end - start >= GLIMPSE:
            self._left -= 1
            self._write(_line(name, phase, start, end))
            if not self._left:
                self._write(_line(f"details end here: {MOST:,} were told", phase, end, end))

    def close(self) -> None:
        """Write what is left; nothing is told afterwards."""
        file, self._file = self._file, None
        with suppress(OSError):
            if file is not None:
                file.close()

    def _write(self, line: str) -> None:
        try:
            if self._file is not None:
                self._file.write(line)
        except OSError:
            self.close()


def _line(name: str, phase: str, start: float, end: float) -> str:
    return f'["{name}","{phase}",{start * 1e9:.0f},{end * 1e9:.0f}]\n'


def join(folder: Path, output: Path) -> None:
    """Write the parts in `folder` as one Chrome trace: a process for each rank, a thread for each of its attempts.

    Times are microseconds since the first attempt began; on a virtual clock attempts follow each other at once.
    """
    parts = sorted(_parts(folder), key=lambda found: (found[0].attempt, found[0].rank))
    events = chain(_names([part for part, _ in parts]), _spans(parts))
    with replacing(output) as path, path.open("w") as file:
        file.write('{"displayTimeUnit": "ms", "traceEvents": [\n')
        file.writelines(
            f"{',' if number else ''}{json.dumps(event)}\n" for number, event in enumerate(events)
        )
        file.write("]}\n")


def _parts(folder: Path) -> Iterator[tuple[Part, Path]]:
    for path in folder.glob("trace-*.jsonl"):
        with path.open() as file, suppress(ValueError, TypeError):
            yield Part(**json.loads(file.readline())), path


def _names(parts: Sequence[Part]) -> Iterator[dict[str, Any]]:
    for part in parts:
        place = {"ph": "M", "pid": part.rank, "tid": part.attempt}
        whose = f"rank {part.rank}, {part.role} on {part.host}"
        yield {**place, "name": "process_name", "args": {"name": whose}}
        yield {**place, "name": "process_sort_index", "args": {"sort_index": part.rank}}
        yield {**place, "name": "thread_name", "args": {"name": f"attempt {part.attempt}"}}


def _spans(parts: Sequence[tuple[Part, Path]]) -> Iterator[dict[str, Any]]:
    first = min((part.start + part.shift for part, _ in parts), default=0.0)
    ends: defaultdict[int, float] = defaultdict(float)  # microseconds, of each attempt on a virtual clock
    for part, path in parts:
        before = max((end for attempt, end in ends.items() if attempt < part.attempt), default=0.0)
        shift = before if part.virtual else 1e6 * (part.shift - first)
        for name, phase, start, end in _lines(path):
            times = {"ts": round(start / 1e3 + shift, 3), "dur": round((end - start) / 1e3, 3)}
            ends[part.attempt] = max(ends[part.attempt], end / 1e3 + shift)
            yield {"name": name, "cat": phase, "ph": "X", "pid": part.rank, "tid": part.attempt, **times}


def _lines(path: Path) -> Iterator[list[Any]]:
    """Yield the spans of a part, less a line that a crash cut short."""
    with path.open() as file:
        file.readline()
        for line in file:
            with suppress(ValueError):
                span = json.loads(line)
                if len(span) == 4:
                    yield span
