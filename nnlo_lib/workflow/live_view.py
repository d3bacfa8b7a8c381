"""Trainings that run, shown as text, as JSON, as a page that loads itself again, and as a screen with keys."""

import json
import os
import select
import sys
import termios
import time
import tty
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from nnlo_lib.config.paths import SEARCH_FOLDER, ExperimentPaths, RunPaths, SearchPaths
from nnlo_lib.core.atomic_file import atomic_write, without_nan
from nnlo_lib.core.errors import UserError
from nnlo_lib.core.text_format import duration_text, number, table_lines
from nnlo_lib.workflow.live_jobs import ACTIVE_STATES, BAD_STATES, LiveJob, LiveJobs

if TYPE_CHECKING:
    from rich.console import Group

    from nnlo_lib.report.figure import Figure

HEADINGS = (
    "training", "state", "beat", "epoch", "left", "limit", "metric", "samples/s", "wait", "restarts", "GPU", "note",
)  # fmt: skip
SPARKS = "▁▂▃▄▅▆▇█"
SPARK_WIDTH, BAR_WIDTH = 8, 6  # characters
MIN_NOTE = 24  # characters
DISPENSABLE = (
    "wait",
    "samples/s",
    "GPU",
    "restarts",
    "beat",
    "limit",
    "metric",
    "left",
)  # on a narrow screen, in this order
MAX_CURVES, MAX_CURVE_POINTS = 40, 60  # of a figure of the page
COLORS = {
    "running": "green", "finished": "blue", "pending": "yellow", "requeued": "yellow", "preempted": "yellow",
    "time limit": "yellow", "starting": "yellow", **dict.fromkeys(BAD_STATES, "bold red"), "copied folder": "magenta",
}  # fmt: skip
KEYS = "↑↓ select  l log  f failures only  r report  q quit"
ARROWS = {b"\x1b[A": "k", b"\x1b[B": "j"}


def cells(job: LiveJob) -> tuple[str, ...]:
    """Return the cells of a training, in the order of HEADINGS."""
    shown = f"{job.metric} {number(job.values[-1])} {sparkline(job.values)}" if job.values else ""
    return (
        f"{job.run} {job.job}", job.state, _duration(job.heartbeat_s), _bar(job), _duration(job.eta_s),
        _duration(job.left_s), shown, number(job.samples_per_second, 3) if job.samples_per_second else "",
        _percent(job.wait and 100 * job.wait), str(job.restarts or ""), _percent(job.gpu_percent), job.note,
    )  # fmt: skip


def _duration(seconds: float | None) -> str:
    if seconds is None:
        return ""
    return f"{round(seconds)} s" if seconds < 600 else duration_text(seconds)


def _percent(value: float | None) -> str:
    return "" if value is None else f"{value:.0f} %"


def _bar(job: LiveJob) -> str:
    """Return `███    12/40` for the trained epochs."""
    if job.epoch is None or not job.epochs:
        return f"0/{job.epochs}" if job.epochs else ""
    full = round(BAR_WIDTH * min(1.0, job.epoch / job.epochs))
    return f"{'█' * full}{'░' * (BAR_WIDTH - full)} {int(job.epoch)}/{job.epochs}"


def sparkline(values: Sequence[float]) -> str:
    """Return at most SPARK_WIDTH blocks that show a curve, the first and the last value among them; only finite values count."""
    finite = [value for value in values if abs(value) < float("inf")]
    step = max(1.0, (len(finite) - 1) / (SPARK_WIDTH - 1))
    known = [finite[round(place * step)] for place in range(SPARK_WIDTH) if round(place * step) < len(finite)]
    low, high = (min(known), max(known)) if known else (0.0, 0.0)
    top = len(SPARKS) - 1
    return "".join(SPARKS[round(top * (value - low) / (high - low)) if high > low else 0] for value in known)


def count_states(jobs: Sequence[LiveJob]) -> str:
    """Return the number of trainings in each state as text."""
    counts = Counter(job.state for job in jobs)
    return ", ".join(f"{count} {state}" for state, count in counts.most_common()) or "no trainings"


def as_text(jobs: Sequence[LiveJob]) -> str:
    """Return a table for each experiment; columns without a value are left out."""
    lines = []
    for experiment, rows in _by_experiment(jobs).items():
        table = _filled_columns(rows)
        lines += [f"{experiment}: {count_states(rows)}", *table_lines(table, left=range(len(table[0])))]
    return "\n".join(lines or ["no trainings"])


def _filled_columns(jobs: Sequence[LiveJob]) -> list[list[str]]:
    """Return headings and rows, without the columns that have no value."""
    table = [HEADINGS, *map(cells, jobs)]
    shown = [place for place in range(len(HEADINGS)) if any(row[place] for row in table[1:])]
    return [[row[place] for place in shown] for row in table]


def _by_experiment(jobs: Sequence[LiveJob]) -> dict[str, list[LiveJob]]:
    groups: dict[str, list[LiveJob]] = {}
    for job in jobs:
        groups.setdefault(job.experiment, []).append(job)
    return groups


def as_json(jobs: Sequence[LiveJob]) -> str:
    """Return a list of objects with the fields of LiveJob."""
    return json.dumps(without_nan([asdict(job) for job in jobs]), indent=1)


def write_live_page(output: Path, folder: Path, jobs: Sequence[LiveJob], every: float | None) -> None:
    """Write the page, which a browser loads again after `every` seconds; None: which does not change any more."""
    from nnlo_lib.report.page import render_template

    headings, *rows = _filled_columns(jobs)
    text = render_template(
        "live_page.html", headings=headings, rows=rows, figures=_curves(jobs), bad=BAD_STATES,
        counts=count_states(jobs), title=", ".join(_by_experiment(jobs)) or str(folder), every=every and max(1, round(every)),
        time=time.strftime("%Y-%m-%d %H:%M:%S"),
    )  # fmt: skip
    with atomic_write(output) as part:
        part.write_text(text, encoding="utf-8")


def _curves(jobs: Sequence[LiveJob]) -> list["Figure"]:
    """Return a figure for each metric, with a curve per training that has two values; active trainings first."""
    import pandas as pd

    from nnlo_lib.report.figure import Figure, curve_spec, thinned, value_axis

    known = sorted(
        (job for job in jobs if len(job.values) > 1), key=lambda job: job.state not in ACTIVE_STATES
    )
    figures = []
    for metric in dict.fromkeys(job.metric for job in known):
        ours = [job for job in known if job.metric == metric]
        rows = [
            (run, -1, place + 1, job.values[place], float("nan"))
            for run, job in enumerate(ours[:MAX_CURVES])
            for place in thinned(range(len(job.values)), MAX_CURVE_POINTS)
        ]
        points = pd.DataFrame(rows, columns=["run", "job", "epoch", "value", "std"])
        finite = points[points["value"].abs() < float("inf")]
        if finite.empty:
            continue
        names = [f"{job.run} {job.job}" for job in ours[:MAX_CURVES]]
        spec = curve_spec(finite, "epoch", "validation", value_axis(metric, finite["value"]), names)
        note = f"{len(names)} of {len(ours)} trainings" if len(ours) > len(names) else ""
        figures.append(
            Figure(
                metric, note, f"{metric} of {len(names)} trainings, whose last values are in the table.", spec
            )
        )
    return figures


def keep_page(
    watch: LiveJobs, output: Path, every: float, sleep: Callable[[float], None] = time.sleep
) -> None:
    """Write the page again every few seconds, until no training is active."""
    while True:
        jobs = watch.look()
        is_active = any(job.is_driven or job.state in ACTIVE_STATES for job in jobs)
        write_live_page(output, watch.folder, jobs, every if is_active else None)
        if not is_active:
            return
        sleep(every)


def report_folder(folder: Path, experiment_file: Path | None = None, output: Path | None = None) -> Path:
    """Write the page of an experiment from the results that exist, and return its path; the page names the other trainings.

    Without any result, the page shows the trainings as `nnlo watch --html` does.

    Args:
        folder: results/<experiment>.
        output: page to write; None: report.html in the folder, which the next Snakemake then writes again.

    Raises UserError if the folder has not exactly one experiment, or a result cannot be read.
    """
    from nnlo_lib.report.page import write_page, write_search_page
    from nnlo_lib.workflow.outcome import mark_as_partial

    jobs = LiveJobs(folder).settled_look()
    experiments = _by_experiment(jobs)
    if len(experiments) != 1:
        raise UserError(f"{folder}: has {len(experiments)} experiments; pass results/<experiment>")
    first = Path(jobs[0].folder)
    folder = next(each for each in first.parents if each.name == jobs[0].experiment)
    page, search = output or folder / ExperimentPaths.page.name, SearchPaths(folder / SEARCH_FOLDER)
    trained = {Path(job.folder): job.state for job in jobs if SearchPaths.around(Path(job.folder)) is None}
    done = [
        each for each, state in trained.items() if state == "finished" and RunPaths(each).evaluation.exists()
    ]
    others = {each: state for each, state in trained.items() if each not in done}
    searched = search.folder if search.results() else None
    if done:
        write_page(page, experiment_file, None, done, searched, others)
    elif searched:
        write_search_page(page, searched)
    else:
        write_live_page(page, folder, jobs, None)
    if output is None and len(done) < len(trained):
        mark_as_partial(folder)
    return page


class Screen:
    """State of the screen: the selected training, the filter, and a message or the end of a log below the table."""

    def __init__(self, watch: LiveJobs) -> None:
        self._watch = watch
        self.jobs: list[LiveJob] = []
        self.selected, self.only_bad, self.shows_log, self.message = 0, False, False, KEYS

    @property
    def shown(self) -> list[LiveJob]:
        """The trainings that pass the filter."""
        return [job for job in self.jobs if not self.only_bad or job.state in BAD_STATES]

    def refresh(self) -> None:
        """Look at the trainings."""
        self.jobs = self._watch.look()

    def press(self, key: str) -> bool:
        """Act on a key; return False to quit."""
        if key in ("j", "k"):
            self.selected += 1 if key == "j" else -1
        elif key == "f":
            self.only_bad = not self.only_bad
        elif key == "l":
            self.shows_log = not self.shows_log
        elif key == "r":
            try:
                self.message = f"wrote {report_folder(self._watch.folder)}"
            except UserError as error:
                self.message = str(error)
        self.selected = max(0, min(self.selected, len(self.shown) - 1))
        return key != "q"

    def render(self, height: int, width: int) -> "Group":
        """Return what rich prints on a terminal of this size; a narrow one lacks the columns of `DISPENSABLE`."""
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        log = self._log_lines(height // 2) if self.shows_log else []
        room = max(1, height - len(log) - 4)
        first = max(0, min(self.selected - room // 2, len(self.shown) - room))
        shown = self.shown[first : first + room]
        columns = _filled_columns(shown) if shown else [["no trainings"]]
        widths = {each[0]: max(map(len, each)) + 1 for each in zip(*columns, strict=True)}
        widths["note"] = min(MIN_NOTE, widths.get("note", 0))
        kept = set(widths)
        for heading in DISPENSABLE:
            if sum(widths[each] for each in kept) > width:
                kept.discard(heading)
        table = Table(box=None, pad_edge=False, expand=True, header_style="bold", padding=(0, 1, 0, 0))
        for heading in filter(kept.__contains__, columns[0]):
            is_note = heading == "note"
            table.add_column(heading, no_wrap=True, overflow="ellipsis", ratio=1 if is_note else None)
        for place, (job, row) in enumerate(zip(shown, columns[1:], strict=True), first):
            known = dict(zip(columns[0], map(Text, row), strict=True))
            known["state"].stylize(COLORS.get(job.state, ""))
            style = "reverse" if place == self.selected else ""
            table.add_row(*(known[heading] for heading in columns[0] if heading in kept), style=style)
        only = " (failures only)" if self.only_bad else ""
        counts = Text(f"{count_states(self.jobs)}{only}  {time.strftime('%H:%M:%S')}", style="bold")
        lines = [Text(line, no_wrap=True, overflow="ellipsis") for line in log]
        return Group(counts, table, *lines, Text(self.message, style="dim"))

    def _log_lines(self, count: int) -> list[str]:
        if not self.shown:
            return []
        paths = RunPaths(Path(self.shown[self.selected].folder))
        for path in (paths.workflow_logs / "train.log", paths.trial_log, paths.state.log):
            if path.exists():
                return [str(path), *path.read_text(errors="replace").splitlines()[-count:]]
        return ["no log yet"]


def run_screen(watch: LiveJobs, every: float) -> None:
    """Show the trainings on the terminal until the key q. Raises UserError without a terminal."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UserError("nnlo watch: needs a terminal; pass --once, --json or --html FILE")
    from rich.live import Live

    screen = Screen(watch)
    with _unbuffered_keys() as read_key, Live(screen=True, auto_refresh=False) as live:
        due = 0.0
        while True:
            if time.monotonic() >= due:
                screen.refresh()
                due = time.monotonic() + every
            live.update(screen.render(live.console.height, live.console.width), refresh=True)
            if not screen.press(read_key(max(0.0, due - time.monotonic()))):
                return


@contextmanager
def _unbuffered_keys() -> Iterator[Callable[[float], str]]:
    """Yield a function that returns the next key, or an empty string after some seconds; restore the terminal."""
    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)

    def read_key(seconds: float) -> str:
        if not select.select([terminal], [], [], seconds)[0]:
            return ""
        typed = os.read(terminal, 8)
        return ARROWS.get(typed, typed[:1].decode(errors="replace"))

    try:
        tty.setcbreak(terminal)
        yield read_key
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)
