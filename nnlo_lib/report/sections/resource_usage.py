"""Usage of processors, memory and GPUs by the ranks, for runs with a monitor."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pandas as pd

from nnlo_lib.core.text_format import number
from nnlo_lib.report.charts import axis
from nnlo_lib.report.charts.chart import svg_path
from nnlo_lib.report.charts.curve import MAX_CURVE_POINTS, Curve
from nnlo_lib.report.charts.learning_curves import AXIS_INSET, BOTTOM, LEFT, RIGHT, TOP, CurvePanel
from nnlo_lib.report.finished_job import group_by_run
from nnlo_lib.report.formatting import UNBROKEN, RunTable, format_bytes, run_table
from nnlo_lib.state.finished_run import FinishedRun
from nnlo_lib.state.published_file import read_table

MILLION = 1e6
PAUSE_FACTOR = 10


def _percentage(value: float) -> str:
    return f"{number(value, 3)}{UNBROKEN}%"


@dataclass(frozen=True)
class MonitoredQuantity:
    """A monitored quantity.

    Attributes:
        column: column of monitor.csv.
        title: heading.
        unit: divisor of the values on the axis.
        note: unit of the axis as text.
        format_value: formats a value of `column`.
    """

    column: str
    title: str
    unit: float
    note: str
    format_value: Callable[[float], str]


MONITORED_QUANTITIES = (
    MonitoredQuantity("cpu_percent", "Processor usage of a rank", 1, "% of a core", _percentage),
    MonitoredQuantity("memory_bytes", "Memory of a rank", MILLION, "MB", format_bytes),
    MonitoredQuantity("host_cpu_percent", "Processor usage of the host", 1, "% of all cores", _percentage),
    MonitoredQuantity("host_memory_bytes", "Memory of the host", MILLION, "MB", format_bytes),
    MonitoredQuantity("gpu_percent", "GPU utilization", 1, "% of the time", _percentage),
    MonitoredQuantity("gpu_memory_bytes", "GPU memory", MILLION, "MB", format_bytes),
)


def monitor_tables(jobs: Sequence[FinishedRun]) -> dict[str, pd.DataFrame]:
    """Return the monitor table of the first job of each run, if that job has one."""
    first = {run: group[0].paths.monitor for run, group in group_by_run(jobs).items()}
    known = {run: read_table(file, ["seconds", "rank"]) for run, file in first.items() if file.exists()}
    return {run: _without_breaks(table) for run, table in known.items() if len(table)}


def _without_breaks(table: pd.DataFrame) -> pd.DataFrame:
    """Remove pauses between attempts: gaps above PAUSE_FACTOR usual intervals become one interval."""
    usual = table.groupby("rank")["seconds"].diff().median()
    gaps = table["seconds"].diff().fillna(0)
    # The negation keeps gaps if `usual` is NaN, because a rank has only one sample.
    return table.assign(seconds=gaps.where(~(gaps > PAUSE_FACTOR * usual), usual).cumsum())


def usage_table(found: dict[str, pd.DataFrame]) -> RunTable:
    """Return mean and maximum of each monitored quantity by run."""
    return run_table({run: _row(table) for run, table in found.items()})


def usage_panels(found: dict[str, pd.DataFrame], runs: Sequence[str]) -> list[CurvePanel]:
    """Return a panel for each monitored quantity with more than one point in time: the mean over ranks."""
    drawn = (_panel(figure, found, runs) for figure in MONITORED_QUANTITIES)
    return [panel for panel in drawn if panel is not None]


def _row(table: pd.DataFrame) -> dict[str, str]:
    known = [
        figure
        for figure in MONITORED_QUANTITIES
        if figure.column in table and table[figure.column].notna().any()
    ]
    return {
        f"{figure.title.lower().replace('gpu', 'GPU')}": f"{figure.format_value(table[figure.column].mean())} "
        f"(maximum {figure.format_value(table[figure.column].max())})"
        for figure in known
    }


def _panel(
    figure: MonitoredQuantity, found: dict[str, pd.DataFrame], runs: Sequence[str]
) -> CurvePanel | None:
    lines = {run: _line(table, figure) for run, table in found.items() if figure.column in table}
    lines = {run: line for run, line in lines.items() if len(line) > 1}
    if not lines:
        return None
    known = pd.concat(lines.values())
    x = axis.linear([0.0, *known.index], LEFT, RIGHT - AXIS_INSET)
    y = axis.linear([0.0, *known], BOTTOM - AXIS_INSET, TOP + AXIS_INSET)
    places = {
        run: list(zip(map(x.position, line.index), map(y.position, line), strict=True))
        for run, line in lines.items()
    }
    curves = tuple(Curve(runs.index(run), svg_path(points), (), "", ()) for run, points in places.items())
    return CurvePanel(figure.title, figure.note, "time (s)", x, y, curves)


def _line(table: pd.DataFrame, figure: MonitoredQuantity) -> "pd.Series[float]":
    """Return the mean over ranks, averaged in about MAX_CURVE_POINTS time intervals."""
    known = table.dropna(subset=[figure.column])
    # The ranks sample at different times, so their rows are grouped by interval and not by time.
    width = max(table["seconds"].max() / MAX_CURVE_POINTS, 1e-9)
    when = ((known["seconds"] / width).round() * width).rename("when")
    return known.groupby(when)[figure.column].mean() / figure.unit
