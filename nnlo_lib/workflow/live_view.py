"""Trainings that run, as text, as JSON, and as a table on the terminal that is refreshed."""

import json
import os
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from nnlo_lib.config.paths import SEARCH_FOLDER, ExperimentPaths, RunPaths, SearchPaths
from nnlo_lib.core.atomic_file import without_nan
from nnlo_lib.core.errors import UserError
from nnlo_lib.core.text_format import duration_text, number, table_lines
from nnlo_lib.workflow.live_jobs import ACTIVE_STATES, BAD_STATES, LiveJob, LiveJobs

if TYPE_CHECKING:
    from rich.console import Console, Group

HEADINGS = (
    "training", "state", "beat", "epoch", "left", "limit", "metric", "samples/s", "wait", "restarts", "GPU", "note",
)  # fmt: skip
SPARKS = "▁▂▃▄▅▆▇█"
SPARK_WIDTH, BAR_WIDTH = 8, 6  # characters
# On a narrow screen, the columns that go, in this order: the reason in the note matters more.
DISPENSABLE = "wait", "samples/s", "GPU", "restarts", "beat", "limit", "left", "metric"
EXPLAINED = {
    "beat": "since the launcher's heartbeat", "left": "to the last epoch", "limit": "that the job has left",
    "wait": "for other ranks",
}  # fmt: skip
MIN_HEIGHT = 12  # lines of a screen that also explains its columns and names the page
MIN_NOTE = 24  # characters
COLORS = {
    "running": "green", "finished": "blue", "pending": "yellow", "requeued": "yellow", "preempted": "yellow",
    "time limit": "yellow", "starting": "yellow", **dict.fromkeys(BAD_STATES, "bold red"), "copied folder": "magenta",
}  # fmt: skip


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


def report_folder(folder: Path, experiment_file: Path | None = None, output: Path | None = None) -> Path:
    """Write the page of an experiment from the results that exist, and return its path; the page names the other trainings.

    Args:
        folder: results/<experiment>.
        output: page to write; None: report.html in the folder, which the next Snakemake then writes again.

    Raises UserError if the folder has not exactly one experiment, or no result that can be read.
    """
    from nnlo_lib.report.page import write_page, write_search_page

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
        name = os.path.relpath(folder)
        raise UserError(
            f"{name}: no training has results yet; `nnlo status {name}` shows why ({count_states(jobs)})"
        )
    return page


def watch_trainings(
    folder: Path, every: float, console: "Console", sleep: Callable[[float], None] = time.sleep
) -> None:
    """Show the trainings below a folder on a terminal until a signal ends it; wait for a folder that does not exist yet."""
    from rich.live import Live
    from rich.text import Text

    watch = None
    with Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            if watch is None and folder.is_dir():
                watch = LiveJobs(folder)
            waiting = f"{folder}: no such folder yet; it appears when the first training starts (Ctrl-C ends)"
            shown = screen(watch.look(), live.console.width, live.console.height) if watch else Text(waiting)
            live.update(shown, refresh=True)
            sleep(every)


def screen(jobs: Sequence[LiveJob], width: int, height: int) -> "Group":
    """Return what rich prints on a terminal of this size: the states, and a table of as many trainings as fit.

    If they do not all fit, those that failed and those that run come first. A narrow screen lacks DISPENSABLE columns. Below:
    what the columns mean, and where the page is.
    """
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    folders = [each for job in jobs for each in Path(job.folder).parents if each.name == job.experiment]
    page = folders[0] / ExperimentPaths.page.name if folders else Path()
    written = f"page: {page}" if page.is_file() else f"nnlo report {page.parent} writes the page so far"
    has_end = height >= MIN_HEIGHT and bool(folders)
    # Without the counts, the headings, the line of what is left out, and two lines at the end.
    rows = height - 3 - 2 * has_end
    if len(jobs) > rows:
        order = (*BAD_STATES, *ACTIVE_STATES)
        jobs = sorted(jobs, key=lambda job: order.index(job.state) if job.state in order else len(order))
    shown, left_out = jobs[:rows], jobs[rows:]
    columns = list(zip(*_filled_columns(shown), strict=True)) if shown else []
    if len(_by_experiment(jobs)) > 1:
        columns.insert(0, ("experiment", *(job.experiment for job in shown)))
    for heading in DISPENSABLE:
        widths = (min(max(map(len, each)), MIN_NOTE if each[0] == "note" else width) + 1 for each in columns)
        if sum(widths) > width:
            columns = [each for each in columns if each[0] != heading]
    table = Table(box=None, pad_edge=False, expand=True, header_style="bold", padding=(0, 1, 0, 0))
    for heading, *_ in columns:
        table.add_column(heading, no_wrap=True, overflow="ellipsis", ratio=1 if heading == "note" else None)
    for job, cell_texts in zip(shown, zip(*(each[1:] for each in columns), strict=True), strict=True):
        table.add_row(*(Text(text, COLORS.get(text, "") if text == job.state else "") for text in cell_texts))
    counts = Text(f"{count_states(jobs)}  {time.strftime('%H:%M:%S')}", "bold")
    more = [Text(f"and {len(left_out)} more: {count_states(left_out)}", "dim")] if left_out else []
    known = "; ".join(f"{each[0]}: {EXPLAINED[each[0]]}" for each in columns if each[0] in EXPLAINED)
    end = [Text(text, "dim", no_wrap=True, overflow="ellipsis") for text in (known, written) if text]
    return Group(counts, table, *more, *(end if has_end else []))
