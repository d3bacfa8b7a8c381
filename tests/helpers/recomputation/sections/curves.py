"""Recomputation of the learning curves from the histories."""

import math
import re
from collections.abc import Sequence
from statistics import fmean

from helpers.recomputation.audit import Audit
from helpers.recomputation.element import Element
from helpers.recomputation.plane import (
    SCALES,
    Ruler,
    check_line,
    check_mark,
    check_place,
    points,
    read_ticks,
    ruler,
)
from helpers.recomputation.quantity import Spread, spread
from helpers.recomputation.raw import Job, Trainings, validations_within

MOST_LINES = 6  # lines of single trainings; more are a band
SPLITS = {"Training": "train", "Validation": "val"}
DISTANCE = "Mean distance of the nodes from their mean"
WITHIN = "Points between whole epochs are validations within an epoch."
BEFORE = "The point at epoch 0 is the model before its first step."


def check_curves(audit: Audit, raw: Trainings) -> None:
    """Compare each panel of the section on learning curves with the histories."""
    section = audit.page.section("curves")
    if section is None:
        return
    for panel in section.all("figure"):
        _check_panel(audit, panel, raw)
    if len(raw.jobs) > len(raw.runs):
        audit.says(section.all("p")[-1], f"mean over {raw.repetitions}")
    _check_that_all_are_drawn(audit, section, raw)


def _check_that_all_are_drawn(audit: Audit, section: Element, raw: Trainings) -> None:
    drawn = {_metric(panel)[0] for panel in section.all("figure")}
    recorded = {
        name
        for job in raw.jobs
        for name, value in job.history[-1].items()
        if _is_drawn(name, job) and not math.isnan(value)
    }
    # The metrics of training data are drawn only if there are none of validation data, except for the loss.
    wanted = {
        name
        for name in recorded
        if name == "train_loss" or f"val_{name.partition('_')[2]}" not in recorded or name.startswith("val")
    }
    audit.require(wanted <= drawn, section, f"no curve of {sorted(wanted - drawn)}")


def check_validations(audit: Audit, raw: Trainings) -> None:
    """Compare the sentences on validations before the first step and within epochs with the recorded ones."""
    section = audit.page.section("curves")
    steps = [row["step"] for job in raw.jobs for row in validations_within(job)]
    for text, expected in ((WITHIN, any(steps)), (BEFORE, 0 in steps)):
        audit.require((text in section.text) == expected, section, f"{text!r}: {expected}")
        audit.says(section.all("p")[-1], text) if expected else None


def _is_drawn(name: str, job: Job) -> bool:
    extreme = re.fullmatch(r"(.*)_(min|max)", name)
    return name.startswith(("train_", "val_")) and not (extreme and extreme[1] in job.history[-1])


def _metric(panel: Element) -> tuple[str, str]:
    """Return the column of the history, and the loss function in parentheses, if any."""
    title, _, loss = panel.first("figcaption").children[0].value.strip().rstrip(")").partition(" (")
    if title == DISTANCE:
        return "consensus_error", ""
    split, _, name = title.partition(" ")
    return f"{SPLITS[split]}_{name.replace(' ', '_')}", loss


def _loss(job: Job, metric: str) -> str:
    """Return the loss function on which a metric depends, with its settings, or an empty text."""
    split, _, name = metric.partition("_")
    config = job.summary["config"]
    loss, problem = config["loss"], config["problem"]
    delta = [f"delta {problem['huber_delta']:g}"] if "huber_delta" in problem else []
    if problem["name"] == "gan":
        parts = [loss, *(["critic + generator"] if name == "loss" else [])]
        return ", ".join(
            [*parts, *([f"gradient penalty {problem['gradient_penalty']:g}"] if split == "train" else [])]
        )
    if name == "loss":
        return ", ".join([loss, *(delta if loss == "huber" else [])])
    return ", ".join(delta if name == "huber" else [])


def _check_panel(audit: Audit, panel: Element, raw: Trainings) -> None:
    svg, (metric, loss) = panel.first("svg"), _metric(panel)
    if loss:
        title = panel.first("figcaption").children[0].value.strip()
        audit.own(panel.first("figcaption"), title)
        audit.attribute(svg, "aria-label", f"{title} against {svg['aria-label'].rpartition(' against ')[2]}")
    note = "".join(each.text for each in panel.first("figcaption").all("small"))
    xs, ys = read_ticks(audit, svg)
    x, y = ruler(audit, svg, xs, float), ruler(audit, svg, ys, SCALES[note])
    against = "epoch" if svg["aria-label"].endswith("epoch") else "seconds"
    groups = svg.all("g")
    alike = {
        run: jobs
        for run, jobs in raw.runs.items()
        if metric == "consensus_error" or _loss(jobs[0], metric) == loss
    }
    wanted = [run for run, jobs in alike.items() if any(_finite(job, metric) for job in jobs)]
    numbers = [list(raw.runs).index(run) for run in wanted]
    audit.require(
        [f"run-{n}" for n in numbers] == [each["class"] for each in groups],
        svg,
        f"curves of {wanted} expected",
    )
    for group, run in zip(groups, wanted, strict=False):
        if x and y:
            _check_curve(audit, group, run, _Curve(raw.runs[run], metric), x, y, against)


def _finite(job: Job, metric: str) -> list[tuple[float, float, float]]:
    rows = sorted([*job.history, *validations_within(job)], key=lambda row: row["epoch"])
    values = [(row["epoch"], row["seconds"], row.get(metric, math.nan)) for row in rows]
    return [row for row in values if math.isfinite(row[2])]


class _Curve:
    """Epoch, seconds and value of each training of a run, and their mean at the epochs that all have."""

    def __init__(self, jobs: Sequence[Job], metric: str) -> None:
        self.simulated = jobs[0].simulated
        self.lines = [line for line in (_finite(job, metric) for job in jobs) if line]
        by_epoch = [{epoch: (seconds, value) for epoch, seconds, value in line} for line in self.lines]
        self.epochs = sorted(set.intersection(*(set(each) for each in by_epoch)))
        self.seconds = [fmean(each[epoch][0] for each in by_epoch) for epoch in self.epochs]
        self.values = [spread([each[epoch][1] for each in by_epoch]) for epoch in self.epochs]


def _check_curve(
    audit: Audit, group: Element, run: str, curve: _Curve, x: Ruler, y: Ruler, against: str
) -> None:
    across = curve.epochs if against == "epoch" else curve.seconds
    mean = list(zip(across, (value.mean for value in curve.values), strict=True))
    check_line(audit, group.first("path", "mean"), mean, x, y)
    lines = group.all("path", "job")
    expected = [] if len(curve.lines) in (1, *range(MOST_LINES + 1, 1000)) else curve.lines
    audit.require(len(lines) == len(expected), group, f"{len(lines)} lines of {len(expected)} trainings")
    for path, line in zip(lines, expected, strict=False):
        check_line(audit, path, [(row[0] if against == "epoch" else row[1], row[2]) for row in line], x, y)
    for band in group.all("path", "band"):
        _check_band(audit, band, across, curve.values, x, y)
    circles = group.all("circle")
    audit.require(len(circles) == len(mean), group, f"{len(circles)} marks of {len(mean)} epochs")
    for number, (circle, point) in enumerate(zip(circles, mean, strict=False)):
        check_mark(audit, circle, *point, x, y)
        _check_tooltip(audit, circle, run, curve, number)


def _check_tooltip(audit: Audit, circle: Element, run: str, curve: _Curve, number: int) -> None:
    unit = "virtual s" if curve.simulated else "s"
    epoch = curve.epochs[number]
    values = (
        int(epoch) if epoch == int(epoch) else epoch,
        curve.seconds[number],
        *_value(curve.values[number]),
    )
    template = f"{run} · epoch {{}}, {{}}: {{}}" + (" ± {}" if len(values) == 4 else "")
    title = circle.first("title")
    audit.require(f" {unit}: " in title.text, title, f"the unit is not {unit}")
    audit.same(title, template, *values)


def _value(value: Spread) -> list[float]:
    return [value.mean] if math.isnan(value.deviation) else [value.mean, value.deviation]


def _check_band(
    audit: Audit, band: Element, across: Sequence[float], values: Sequence[Spread], x: Ruler, y: Ruler
) -> None:
    """Compare the outline of a band with mean ± standard deviation; the band is cut at the edge of the chart."""
    band.attributes["d"].explain()
    drawn = points(band["d"])
    outline = [(a, value.mean + value.deviation) for a, value in zip(across, values, strict=True)]
    outline += [
        (a, value.mean - value.deviation) for a, value in reversed(list(zip(across, values, strict=True)))
    ]
    audit.require(len(drawn) == len(outline), band, f"{len(drawn)} points, not {len(outline)}")
    for place, value in zip(drawn, outline, strict=False):
        edge = place[1] < 18.2 or place[1] > 239.8
        check_place(audit, band, place, (value[0], value[1]), x, y) if not edge else None
