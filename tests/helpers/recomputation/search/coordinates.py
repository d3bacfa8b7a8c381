"""Recomputation of the parallel coordinates of the trials."""

import re

from helpers.recomputation.audit import Audit
from helpers.recomputation.element import Element
from helpers.recomputation.plane import SCALES, Ruler, points, ruler
from helpers.recomputation.search.study import RawStudy, RawTrial


def check_coordinates(audit: Audit, study: RawStudy) -> None:
    """Compare the lines of the parallel coordinates with points and objectives."""
    svg = audit.page.section("search").first("svg", "uprights")
    names, rulers = _axes(audit, svg, study)
    audit.require(set(names) == {*study.search["space"], study.metric}, svg, f"axes {names}")
    lines = {int(re.match(r"trial (\d+)", each.first("title").text)[1]): each for each in svg.all("g")}
    audit.require(
        set(lines) == {trial.number for trial in study.ranked}, svg, "a line per trial with an objective"
    )
    for trial in study.ranked:
        line = lines[trial.number]
        settings = ", ".join(f"{key} {{}}" for key in trial.point)
        audit.same(
            line.first("title"),
            f"trial {trial.number}: {{}}; {settings}",
            trial.objective.mean,
            *trial.point.values(),
        )
        path = line.first("path")
        path.attributes["d"].explain()
        audit.require(
            ("leader" in path.classes) == (trial is study.best),
            path,
            f"the best trial is {study.best.number}",
        )
        _check_line(audit, path, trial, names, rulers, study)


def _axes(
    audit: Audit, svg: Element, study: RawStudy
) -> tuple[list[str], "list[tuple[float, Ruler | None]]"]:
    """Return the names of the axes, and the place and the ruler of each."""
    names, places, ticks, tick = [], [], [], 0.0
    for element in svg.walk():
        if element.tag == "path" and "base" in element.classes:
            element.attributes["d"].explain()
            x, y, kind = re.match(r"M([\d.]+),([\d.]+)([Vh])", element["d"]).groups()
            if kind == "V":
                places.append(float(x))
                ticks.append([])
            tick = float(y)
        if element.tag == "text":
            element.attributes["x"].explain(), element.attributes["y"].explain()
            if "name" in element.classes:
                names.append(element.first("title").text if element.all("title") else element.text)
            else:
                audit.require(abs(float(element["y"]) - 4 - tick) < 0.11, element, f"the tick is at {tick}")
                ticks[-1].append((element.text, tick))
                next(element.texts()).explain()
    return names, [
        (x, _ruler(audit, svg, name, labels, study))
        for x, name, labels in zip(places, names, ticks, strict=True)
    ]


def _ruler(
    audit: Audit, svg: Element, name: str, ticks: list[tuple[str, float]], study: RawStudy
) -> "Ruler | None":
    space = study.search["space"].get(name)
    if choices := study.choices(name):
        audit.require([label for label, _ in ticks] == list(map(str, choices)), svg, f"labels of {name}")
        return Ruler(tuple((float(n), place) for n, (_, place) in enumerate(ticks)), float)
    kind = (
        "log scale of the error"
        if space is None
        else "log scale"
        if "log" in str({k for k, v in space.items() if v})
        else ""
    )
    return ruler(audit, svg, ticks, SCALES[kind])


def _check_line(
    audit: Audit,
    path: Element,
    trial: RawTrial,
    names: list[str],
    rulers: "list[tuple[float, Ruler | None]]",
    study: RawStudy,
) -> None:
    for (x, y), name, (at, scale) in zip(points(path["d"]), names, rulers, strict=True):
        audit.require(abs(x - at) < 0.11, path, f"the axis of {name} is at {at}")
        value = trial.point.get(name, trial.objective.mean)
        choices = study.choices(name)
        value = choices.index(value) if choices else value
        if scale:
            place = scale.place(value)
            audit.require(
                abs(y - place) < scale.tolerance(place),
                path,
                f"{name} = {value} is drawn at {y}, recomputed {place:.2f}",
            )
