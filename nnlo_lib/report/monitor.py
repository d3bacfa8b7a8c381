"""What the ranks used of processors, memory and GPUs, where a monitor watched them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pandas as pd

from nnlo_lib.report import axis
from nnlo_lib.report.curve import POINTS, Curve
from nnlo_lib.report.drawing import path
from nnlo_lib.report.job import Job, by_run, read_table
from nnlo_lib.report.plots import BOTTOM, INSET, LEFT, RIGHT, TOP, Panel
from nnlo_lib.report.sheet import Sheet, sheet
from nnlo_lib.report.words import UNBROKEN, number, size

MILLION = 1e6
BREAK = 10


def _percentage(value: float) -> str:
    return f"{number(value, 3)}{UNBROKEN}%"


@dataclass(frozen=True)
class Figure:
    """A column of monitor.csv, how it is called, the unit of its axis, and how a value is written."""

    column: str
    title: str
    unit: float
    note: str
    say: Callable[[float], str]


FIGURES = (
    Figure("cpu_percent", "Processor of a rank", 1, "% of a core", _percentage),
    Figure("memory_bytes", "Memory of a rank", MILLION, "MB", size),
    Figure("host_cpu_percent", "Processors of the host", 1, "% of all cores", _percentage),
    Figure("host_memory_bytes", "Memory of the host", MILLION, "MB", size),
    Figure("gpu_percent", "GPU", 1, "% of the time", _percentage),
    Figure("gpu_memory_bytes", "Memory of the GPU", MILLION, "MB", size),
)


def tables(jobs: Sequence[Job]) -> dict[str, pd.DataFrame]:
    """Return the monitor's table of the first training of each run that has one."""
    first = {run: group[0].folder / "monitor.csv" for run, group in by_run(jobs).items()}
    known = {run: read_table(file, ["seconds", "rank"]) for run, file in first.items() if file.exists()}
    return {run: _without_breaks(table) for run, table in known.items() if len(table)}


def _without_breaks(table: pd.DataFrame) -> pd.DataFrame:
    """Leave out the time between attempts: the gaps of BREAK times the usual one."""
    usual = table.groupby("rank")["seconds"].diff().median()
    gaps = table["seconds"].diff().fillna(0)
    return table.assign(seconds=gaps.where(~(gaps > BREAK * usual), usual).cumsum())


def means(found: dict[str, pd.DataFrame]) -> Sheet:
    """Return mean and maximum of each figure by run."""
    return sheet({run: _row(table) for run, table in found.items()})


def panels(found: dict[str, pd.DataFrame], runs: Sequence[str]) -> list[Panel]:
    """Return a chart for each figure that changes while time goes on: the mean over ranks."""
    drawn = (_panel(figure, found, runs) for figure in FIGURES)
    return [panel for panel in drawn if panel is not None]


def _row(table: pd.DataFrame) -> dict[str, str]:
    known = [figure for figure in FIGURES if figure.column in table and table[figure.column].notna().any()]
    return {
        f"{figure.title.lower().replace('gpu', 'GPU')}": f"{figure.say(table[figure.column].mean())} "
        f"(most {figure.say(table[figure.column].max())})"
        for figure in known
    }


def _panel(figure: Figure, found: dict[str, pd.DataFrame], runs: Sequence[str]) -> Panel | None:
    lines = {run: _line(table, figure) for run, table in found.items() if figure.column in table}
    lines = {run: line for run, line in lines.items() if len(line) > 1}
    if not lines:
        return None
    known = pd.concat(lines.values())
    x = axis.linear([0.0, *known.index], LEFT, RIGHT - INSET)
    y = axis.linear([0.0, *known], BOTTOM - INSET, TOP + INSET)
    places = {
        run: list(zip(map(x.place, line.index), map(y.place, line), strict=True))
        for run, line in lines.items()
    }
    curves = tuple(Curve(runs.index(run), path(points), (), "", ()) for run, points in places.items())
    return Panel(figure.title, figure.note, "time (s)", x, y, curves)


def _line(table: pd.DataFrame, figure: Figure) -> "pd.Series[float]":
    """Return the mean over ranks at up to POINTS times."""
    known = table.dropna(subset=[figure.column])
    width = max(table["seconds"].max() / POINTS, 1e-9)
    when = ((known["seconds"] / width).round() * width).rename("when")
    return known.groupby(when)[figure.column].mean() / figure.unit
