"""Trace files, one per rank and attempt, and their conversion to one Chrome trace."""

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any, TextIO

from nnlo_lib.core.atomic_file import atomic_write

MAX_DETAIL_SPANS = 200_000  # detail spans that a rank writes in one attempt
MIN_DETAIL_SPAN_S = 10e-6  # seconds; shorter detail spans are not written


@dataclass(frozen=True)
class TraceHeader:
    """First line of a trace file."""

    rank: int
    attempt: int  # number of the attempt, from 1
    role: str
    host: str
    start: float  # start of the trace, in seconds on the rank's clock
    shift: float  # seconds to add to the rank's clock to get seconds since 1970; 0 if the clock is virtual
    virtual: bool  # whether the clock is virtual

    @property
    def file_name(self) -> str:
        """Name of the trace file."""
        return f"trace-{self.rank:05d}-{self.attempt:04d}.jsonl"


class TraceWriter:
    """Writer of one rank's spans in one attempt, and detail spans if `fine`; write errors never end a training."""

    def __init__(self, folder: Path, part: TraceHeader, fine: bool) -> None:
        self._file: TextIO | None = None
        self._detail_spans_left = MAX_DETAIL_SPANS if fine else 0
        with suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            # A large buffer, so that most detail spans cost no system call; `span` flushes it.
            self._file = (folder / part.file_name).open("w", buffering=1 << 16)
            self._file.write(json.dumps(asdict(part)) + "\n")
            # The header must survive a crash before the first span: a file without it is skipped.
            self._file.flush()

    def span(self, name: str, phase: str, start: float, end: float) -> None:
        """Write a span that contains the detail spans since its start; flush the file.

        Start and end are seconds on the rank's clock. The phase of the training is the category in the Chrome trace.
        """
        self._write(name, phase, start, end)
        with suppress(OSError):
            if self._file is not None:
                self._file.flush()

    def detail_span(self, name: str, phase: str, start: float, end: float) -> None:
        """Write a span inside others; after MAX_DETAIL_SPANS detail spans, further ones are dropped."""
        if self._detail_spans_left and end - start >= MIN_DETAIL_SPAN_S:
            self._detail_spans_left -= 1
            self._write(name, phase, start, end)
            if not self._detail_spans_left:
                note = f"no more detail spans: the limit of {MAX_DETAIL_SPANS:,} is reached"
                self._write(note, phase, end, end)

    def close(self) -> None:
        """Write buffered spans and close the file; later spans are dropped."""
        file, self._file = self._file, None
        with suppress(OSError):
            if file is not None:
                file.close()

    def _write(self, name: str, phase: str, start: float, end: float) -> None:
        try:
            if self._file is not None:
                self._file.write(f'["{name}","{phase}",{start * 1e9:.0f},{end * 1e9:.0f}]\n')
        except OSError:
            self.close()


def write_chrome_trace(folder: Path, output: Path) -> None:
    """Merge the trace files in `folder` into a Chrome trace with a process per rank and a thread per attempt.

    Times are microseconds since the first attempt began; on a virtual clock, attempts follow without a gap.
    """
    parts = []
    for trace in folder.glob("trace-*.jsonl"):
        with trace.open() as file, suppress(ValueError, TypeError):
            parts.append((TraceHeader(**json.loads(file.readline())), trace))
    parts.sort(key=lambda found: (found[0].attempt, found[0].rank))
    with atomic_write(output) as path, path.open("w") as file:
        file.write('{"displayTimeUnit": "ms", "traceEvents": [\n')
        file.writelines(
            f"{',' if number else ''}{json.dumps(event)}\n" for number, event in enumerate(_events(parts))
        )
        file.write("]}\n")


def _events(parts: Sequence[tuple[TraceHeader, Path]]) -> Iterator[dict[str, Any]]:
    for part, _ in parts:
        ids = {"ph": "M", "pid": part.rank, "tid": part.attempt}
        label = f"rank {part.rank}, {part.role} on {part.host}"
        yield {**ids, "name": "process_name", "args": {"name": label}}
        yield {**ids, "name": "process_sort_index", "args": {"sort_index": part.rank}}
        yield {**ids, "name": "thread_name", "args": {"name": f"attempt {part.attempt}"}}
    first = min((part for part, _ in parts), key=lambda part: part.start + part.shift, default=None)
    ends: defaultdict[int, int] = defaultdict(int)  # nanoseconds, by attempt
    for part, path in parts:
        # A virtual clock starts at 0 in each attempt, so the ends of earlier attempts are added.
        shift = max((end for attempt, end in ends.items() if attempt < part.attempt), default=0)
        if first and not part.virtual:
            # Seconds since 1970 have a resolution of 240 ns as a float, so the difference of the shifts is taken first.
            shift = round((part.shift - first.shift) * 1e9) - round(first.start * 1e9)
        with path.open() as file:
            for line in islice(file, 1, None):
                with suppress(ValueError):  # a line that a crash cut short
                    name, phase, start, end = json.loads(line)
                    times = {"ts": (start + shift) / 1e3, "dur": (end - start) / 1e3}
                    ends[part.attempt] = max(ends[part.attempt], end + shift)
                    yield {
                        "name": name,
                        "cat": phase,
                        "ph": "X",
                        "pid": part.rank,
                        "tid": part.attempt,
                    } | times
