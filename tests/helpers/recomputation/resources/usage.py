"""Recomputation of the use of processors and memory from the monitor tables."""

import math
from collections import defaultdict
from statistics import fmean, median

from helpers.recomputation.audit import Audit
from helpers.recomputation.element import Element
from helpers.recomputation.plane import check_line, read_ticks, ruler
from helpers.recomputation.raw import Job, Row, Trainings
from helpers.recomputation.sections.sheet import check_sheet

COLUMNS = {
    "processor usage of a rank": ("cpu_percent", 0.01), "memory of a rank": ("memory_bytes", 1),
    "processor usage of the host": ("host_cpu_percent", 0.01), "memory of the host": ("host_memory_bytes", 1),
}  # fmt: skip
UNITS = {"% of a core": 1, "% of all cores": 1, "MB": 1e6}
INTERVALS = 120  # intervals of time in a chart
LONG_GAP = 10  # usual intervals; a longer gap is a pause between attempts


def check_usage(audit: Audit, raw: Trainings) -> None:
    """Compare table and charts with the monitor table of the first training of each run."""
    check_sheet(audit, "use", raw, _cell)
    section = audit.page.section("use")
    for chart in section.all("figure") if section else ():
        _check_chart(audit, chart, raw)


def _cell(heading: str, jobs: list[Job]) -> object:
    name, factor = COLUMNS[heading]
    values = [row[name] * factor for row in jobs[0].monitor if not math.isnan(row[name])]
    return "{} (maximum {})", float(fmean(values)), float(max(values))


def _check_chart(audit: Audit, chart: Element, raw: Trainings) -> None:
    svg, note = chart.first("svg"), chart.first("small").text
    xs, ys = read_ticks(audit, svg)
    x, y = ruler(audit, svg, xs, float), ruler(audit, svg, ys, float)
    name, _ = COLUMNS[chart.first("figcaption").children[0].value.strip().lower()]
    lines = {
        number: _line(jobs[0].monitor, name, UNITS[note]) for number, jobs in enumerate(raw.runs.values())
    }
    lines = {f"run-{number}": line for number, line in lines.items() if len(line) > 1}
    groups = {group["class"]: group for group in svg.all("g")}
    audit.require(list(groups) == list(lines), svg, f"lines of {list(lines)} expected")
    for key in groups.keys() & lines.keys():
        if x and y:
            check_line(audit, groups[key].first("path", "mean"), lines[key], x, y)


def _line(table: list[Row], name: str, unit: float) -> list[tuple[float, float]]:
    """Return the mean over ranks in intervals of time, without pauses between attempts."""
    if not table:
        return []
    times = _without_pauses(table)
    width = max(max(times) / INTERVALS, 1e-9)
    groups = defaultdict(list)
    for time, row in zip(times, table, strict=True):
        if not math.isnan(row[name]):
            groups[round(time / width)].append(row[name])
    return [(number * width, fmean(groups[number]) / unit) for number in sorted(groups)]


def _without_pauses(table: list[Row]) -> list[float]:
    last, gaps = {}, []
    for row in table:
        gaps += [row["seconds"] - last[row["rank"]]] if row["rank"] in last else []
        last[row["rank"]] = row["seconds"]
    usual = median(gaps) if gaps else math.inf
    times, before = [0.0], table[0]["seconds"]
    for row in table[1:]:
        gap = row["seconds"] - before
        times.append(times[-1] + (usual if gap > LONG_GAP * usual else gap))
        before = row["seconds"]
    return times
