"""Recomputation of the comparison of the runs, of its dots, and of the table of all trainings."""

import math
import re
from statistics import fmean

from helpers.recomputation.audit import Audit
from helpers.recomputation.element import Element
from helpers.recomputation.quantity import Spread, spread
from helpers.recomputation.raw import Job, Trainings, counted
from helpers.recomputation.sections.nodes import node_range
from helpers.recomputation.statistics.family import family
from helpers.recomputation.statistics.metrics import compared_metrics, ranking_metric
from helpers.recomputation.statistics.tables import cell_value

MEASURED = (
    "problem", "loss_function", "data", "split", "samples", "training_samples", "validation_samples",
)  # fmt: skip
DOTS = 4, 116  # ends of the line of dots, in drawing units


COLUMNS = {
    "training time": "seconds", "virtual time": "seconds", "samples/s": "samples_per_second",
    "samples/virtual s": "samples_per_second", "bytes sent": "bytes_sent",
}  # fmt: skip


def column(heading: str) -> str:
    """Return the column of summary.csv behind a heading."""
    split, _, name = heading.partition(" ")
    name = name.replace(" ", "_")
    return COLUMNS.get(heading) or {"test": name, "validation": f"val_{name}"}.get(split, heading)


def check_comparison(audit: Audit, raw: Trainings) -> None:
    """Compare the cells of the table of runs with the summaries and evaluations."""
    table = audit.page.first("table", "comparison")
    for row, (run, jobs) in zip(table.first("tbody").all("tr"), raw.runs.items(), strict=True):
        audit.require(row.first("th").text == run, row, f"the row of {run}")
        for cell in row.all("td"):
            if "dots" not in cell.classes:
                _check_cell(audit, cell, jobs, raw)
                _check_bold(audit, cell, run, raw)
    _check_first_column(audit, table, raw)


def _check_first_column(audit: Audit, table: Element, raw: Trainings) -> None:
    metric = ranking_metric(raw)
    first = table.first("thead").all("th")[1].text
    if metric:
        audit.require(first == metric.words, table, f"{first} is the first column, not {metric.words}")


def _check_bold(audit: Audit, cell: Element, run: str, raw: Trainings) -> None:
    """Compare the mark of the best run: the run that is better than each other run."""
    tested = {metric.column: metric for metric in compared_metrics(raw)}
    wins = 0
    if metric := tested.get(column(cell["data-label"])):
        wins = sum(each.better == run for each in family(raw, metric))
    best = len(raw.runs) > 1 and wins == len(raw.runs) - 1
    audit.require(("best" in cell.classes) == best, cell, f"{run} is better than {wins} other runs")


def _check_cell(audit: Audit, cell: Element, jobs: list[Job], raw: Trainings) -> None:
    heading = cell["data-label"]
    values = [float(cell_value(column(heading), job)) for job in jobs]
    known = [value for value in values if not math.isnan(value)]
    audit.own(cell, "{}", _cell_value(heading, known))
    for note in cell.all("small", "under"):
        if heading in ("training time", "samples/s"):
            audit.same(note, "virtual" if raw.mixed_clocks and jobs[0].simulated else "(no note)")
        else:
            planned = len({(job.summary["seed"], job.summary["fold"]) for job in raw.jobs})
            if len(known) < planned:
                audit.same(note, f"{{}} of {counted(planned, 'training task')}", len(known))
                continue
            mean, nodes, worst, best = node_range(jobs, heading.removeprefix("test "))
            audit.same(
                note, "validation {}, mean over {} nodes (worst {}, best {})", mean, nodes, worst, best
            )


def _cell_value(heading: str, values: list[float]) -> "Spread | float | None":
    if not values:
        return None
    if heading == "restarts":
        return int(sum(values))
    if heading == "bytes sent":
        return float(fmean(values))
    equal = len(set(values)) == 1
    return int(values[0]) if heading in ("ranks", "epochs") and equal else spread(values)


def check_dots(audit: Audit, raw: Trainings) -> None:
    """Compare the dots of the trainings with the values of the first column: equal values, equal distances."""
    cells = audit.page.first("table", "comparison").all("td", "dots")
    if not cells:
        return
    # A reader takes the dots for the values of the column to their left.
    heading = audit.page.first("table", "comparison").first("thead").all("th")[1].text
    values = raw.by_run(lambda job: float(cell_value(column(heading), job)))
    every = [value for each in values.values() for value in each if math.isfinite(value)]
    low, high = min(every), max(every)
    for cell, run in zip(cells, raw.runs, strict=True):
        places = [DOTS[0] + (DOTS[1] - DOTS[0]) * (value - low) / (high - low) for value in values[run]]
        cell.first("path", "grid").attributes["d"].explain()
        for circle, place in zip(cell.all("circle"), places, strict=True):
            audit.place(circle, "cx", place)
            audit.place(circle, "cy", 8)
        _check_tick(audit, cell.first("path", "tick"), fmean(places))


def _check_tick(audit: Audit, tick: Element, place: float) -> None:
    tick.attributes["d"].explain()
    shown = float(re.match(r"M([\d.]+),", tick["d"])[1])
    audit.require(abs(shown - place) < 0.06, tick, f"the mean is drawn at {shown}, recomputed {place:.2f}")


def check_all_trainings(audit: Audit, raw: Trainings) -> None:
    """Compare the table of all trainings with the summaries and evaluations."""
    table = next(
        each for each in audit.page.section("comparison").all("table") if each.classes != {"comparison"}
    )
    headings = [each.text for each in table.all("th") if each["scope"] == "col"]
    rows = table.first("tbody").all("tr")
    audit.require(len(rows) == len(raw.jobs), table, f"{len(rows)} rows of {len(raw.jobs)} trainings")
    for row, job in zip(rows, raw.jobs, strict=False):
        for heading, cell in zip(headings, [*row.all("th"), *row.all("td")], strict=True):
            audit.same(cell, "{}", _training_value(heading.replace(" ", "_"), job))
    _check_headings(audit, table, {each.replace(" ", "_") for each in headings}, raw)


def _check_headings(audit: Audit, table: Element, headings: set[str], raw: Trainings) -> None:
    """Require each column of summary.csv with a value; those in which all trainings are equal may be absent."""
    rows = raw.table("summary.csv")
    wanted = {
        name
        for name in rows[0]
        if any(row[name] for row in rows) and (name not in MEASURED or len({row[name] for row in rows}) > 1)
    }
    audit.require(headings == wanted, table, f"columns {sorted(headings ^ wanted)} are missing or too many")


def _training_value(name: str, job: Job) -> "float | int | str | None":
    value = cell_value(name, job)
    return "–" if value in (None, "") else value
