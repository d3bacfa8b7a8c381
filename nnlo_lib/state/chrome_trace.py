"""What a rank did when, in a file of its own for each attempt; all of them as one Chrome trace."""

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Any, TextIO

from nnlo_lib.core.atomic_file import atomic_write

MAX_DETAIL_SPANS = 200_000  # details that a rank tells in one attempt
MIN_DETAIL_SPAN_S = 10e-6  # seconds: shorter details are not told


@dataclass(frozen=True)
class TraceHeader:
    """Whose part of a trace it is. shift: from the rank's clock to seconds since 1970, unless the clock is virtual."""

    rank: int
    attempt: int
    role: str
    host: str
    start: float
    shift: float
    virtual: bool

    @property
    def file_name(self) -> str:
        """Name of its file."""
        return f"trace-{self.rank:05d}-{self.attempt:04d}.jsonl"


class TraceWriter:
    """Writes spans as they end; a disk that refuses is no reason to stop. fine: whether details are wanted."""

    def __init__(self, folder: Path, part: TraceHeader, fine: bool) -> None:
        self._file: TextIO | None = None
        self._detail_spans_left = MAX_DETAIL_SPANS if fine else 0
        with suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            self._file = (folder / part.file_name).open("w", buffering=1 << 16)
            self._file.write(json.dumps(asdict(part)) + "\n")
            self._file.flush()

    def span(self, name: str, phase: str, start: float, end: float) -> None:
        """Tell of a span (seconds on the rank's clock) that holds everything told since it began; keep all on disk."""
        self._write(_line(name, phase, start, end))
        with suppress(OSError):
            if self._file is not None:
                self._file.flush()

    def detail_span(self, name: str, phase: str, start: float, end: float) -> None:
        """Tell of a span inside others, up to MAX_DETAIL_SPANS of them."""
        if self._detail_spans_left and end - start >= MIN_DETAIL_SPAN_S:
            self._detail_spans_left -= 1
            self._write(_line(name, phase, start, end))
            if not self._detail_spans_left:
                self._write(_line(f"details end here: {MAX_DETAIL_SPANS:,} were told", phase, end, end))

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


def write_chrome_trace(folder: Path, output: Path) -> None:
    """Write the parts in `folder` as one Chrome trace: a process for each rank, a thread for each of its attempts.

    Times are microseconds since the first attempt began; on a virtual clock attempts follow each other at once.
    """
    parts = sorted(_read_headers(folder), key=lambda found: (found[0].attempt, found[0].rank))
    events = chain(_metadata_events([part for part, _ in parts]), _span_events(parts))
    with atomic_write(output) as path, path.open("w") as file:
        file.write('{"displayTimeUnit": "ms", "traceEvents": [\n')
        file.writelines(
            f"{',' if number else ''}{json.dumps(event)}\n" for number, event in enumerate(events)
        )
        file.write("]}\n")


def _read_headers(folder: Path) -> Iterator[tuple[TraceHeader, Path]]:
    for path in folder.glob("trace-*.jsonl"):
        with path.open() as file, suppress(ValueError, TypeError):
            yield TraceHeader(**json.loads(file.readline())), path


def _metadata_events(parts: Sequence[TraceHeader]) -> Iterator[dict[str, Any]]:
    for part in parts:
        place = {"ph": "M", "pid": part.rank, "tid": part.attempt}
        whose = f"rank {part.rank}, {part.role} on {part.host}"
        yield {**place, "name": "process_name", "args": {"name": whose}}
        yield {**place, "name": "process_sort_index", "args": {"sort_index": part.rank}}
        yield {**place, "name": "thread_name", "args": {"name": f"attempt {part.attempt}"}}


def _span_events(parts: Sequence[tuple[TraceHeader, Path]]) -> Iterator[dict[str, Any]]:
    first = min((part.start + part.shift for part, _ in parts), default=0.0)
    ends: defaultdict[int, float] = defaultdict(float)  # microseconds, of each attempt on a virtual clock
    for part, path in parts:
        before = max((end for attempt, end in ends.items() if attempt < part.attempt), default=0.0)
        shift = before if part.virtual else 1e6 * (part.shift - first)
        for name, phase, start, end in _read_spans(path):
            times = {"ts": round(start / 1e3 + shift, 3), "dur": round((end - start) / 1e3, 3)}
            ends[part.attempt] = max(ends[part.attempt], end / 1e3 + shift)
            yield {"name": name, "cat": phase, "ph": "X", "pid": part.rank, "tid": part.attempt, **times}


def _read_spans(path: Path) -> Iterator[list[Any]]:
    """Yield the spans of a part, less a line that a crash cut short."""
    with path.open() as file:
        file.readline()
        for line in file:
            with suppress(ValueError):
                span = json.loads(line)
                if len(span) == 4:
                    yield span
