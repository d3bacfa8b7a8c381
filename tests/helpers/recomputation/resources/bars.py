"""Recomputation of stacked bars: seconds by phase, bytes by purpose."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean

from helpers.recomputation.audit import Audit
from helpers.recomputation.element import Element
from helpers.recomputation.raw import Job, Trainings

IDLE = ("communication", "wait")
MOST_NAMED = 3  # runs; of more, a sentence gives the range


@dataclass(frozen=True)
class Bar:
    """A bar: run, role (empty if all ranks have the same), and the mean of each part."""

    run: str
    role: str
    parts: Mapping[str, float]

    @property
    def total(self) -> float:
        return sum(self.parts.values())


def check_time(audit: Audit, raw: Trainings) -> None:
    """Compare the bars of seconds with the seconds of each rank."""
    section = audit.page.section("time")
    bars = [bar for run, jobs in raw.runs.items() for bar in _seconds(run, jobs)]
    _check_bars(audit, section, bars)
    _check_waiting(audit, section.all("p")[-1], bars)


def check_traffic(audit: Audit, raw: Trainings) -> None:
    """Compare the bars of bytes with the bytes of each training."""
    bars = [_bytes(run, jobs) for run, jobs in raw.runs.items()]
    _check_bars(audit, audit.page.section("traffic"), bars)


def _seconds(run: str, jobs: list[Job]) -> list[Bar]:
    roles = list(dict.fromkeys(role for job in jobs for role in job.summary["roles"]))
    found = []
    for role in roles:
        ranks = [
            rank
            for job in jobs
            for rank, its in zip(job.summary["seconds_by_rank"], job.summary["roles"], strict=True)
            if its == role
        ]
        parts = {name: fmean(rank[name] for rank in ranks) for name in ranks[0] if name != "total"}
        rest = [
            rank["total"] - sum(value for name, value in rank.items() if name != "total") for rank in ranks
        ]
        parts["other"] = fmean(
            value if value > 0.005 * rank["total"] else 0.0 for value, rank in zip(rest, ranks, strict=True)
        )
        found.append(Bar(run, role if len(roles) > 1 else "", parts))
    return found


def _bytes(run: str, jobs: list[Job]) -> Bar:
    names = dict.fromkeys(name for job in jobs for name in job.summary["bytes_sent"])
    return Bar(
        run, "", {name: fmean(job.summary["bytes_sent"].get(name, 0) for job in jobs) for name in names}
    )


def _check_bars(audit: Audit, section: Element, bars: list[Bar]) -> None:
    drawn = section.all("div", "bar")
    audit.require(len(drawn) == len(bars), section, f"{len(drawn)} bars, not {len(bars)}")
    longest = max(bar.total for bar in bars) or 1.0
    for element, bar in zip(drawn, bars, strict=False):
        _check_bar(audit, element, bar, longest)
    table = next(each for each in section.all("table") if not each.classes)
    headings = [each.text for each in table.first("thead").all("th")][1:]
    for row, bar in zip(table.first("tbody").all("tr"), bars, strict=True):
        for heading, cell in zip(headings, row.all("td"), strict=True):
            _check_cell(audit, cell, bar, heading)


def _check_bar(audit: Audit, element: Element, bar: Bar, longest: float) -> None:
    label = element.first("span", "label")
    role = re.sub(r"(, )?virtual$", "", label.first("small").text)
    audit.require(
        (label.children[1].value.strip(), role) == (bar.run, bar.role),
        label,
        f"the bar of {bar.run} {bar.role}",
    )
    parts = element.all("span", "part")
    named = [part["title"].partition(":")[0] for part in parts]
    missing = {name for name, value in bar.parts.items() if value} ^ set(named)
    audit.require(not missing, element, f"parts {sorted(missing)} are missing or too many")
    for name, part in zip(named, parts, strict=True):
        _check_part(audit, part, name, bar, longest)
    audit.same(element.first("span", "total"), "{}", float(bar.total))


def _check_part(audit: Audit, part: Element, name: str, bar: Bar, longest: float) -> None:
    value = bar.parts.get(name, 0.0)
    audit.attribute(part, "title", f"{name}: {{}}, {{}}", float(value), value / bar.total)
    audit.percentage(part, "width", value / longest)
    if part.text:
        audit.same(part, "{}", value / bar.total)


def _check_cell(audit: Audit, cell: Element, bar: Bar, heading: str) -> None:
    value = bar.total if heading == "total" else bar.parts.get(heading, 0.0)
    audit.own(cell, "{}", float(value) if value or heading == "total" else None)
    for small in cell.all("small"):
        audit.same(small, "{}", value / bar.total)


def _check_waiting(audit: Audit, paragraph: Element, bars: list[Bar]) -> None:
    shares = {
        bar.run: sum(bar.parts[name] for name in IDLE) / (bar.total - bar.parts["startup"])
        for bar in bars
        if bar.role in ("", "worker")
    }
    ranked = sorted(shares, key=lambda run: shares[run])
    if not shares or not shares[ranked[-1]]:
        audit.require("waiting take" not in paragraph.text, paragraph, "nothing waits")
    elif len(ranked) > MOST_NAMED:
        audit.says(
            paragraph,
            f"Communication and waiting take from {{}} in {ranked[0]} to {{}} in {ranked[-1]} of",
            shares[ranked[0]],
            shares[ranked[-1]],
        )
    else:
        for run in ranked:
            audit.says(paragraph, f" {{}} in {run}", shares[run])
