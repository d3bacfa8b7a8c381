"""Recomputation of the attempts."""

from collections import Counter
from datetime import datetime
from itertools import pairwise

from helpers.recomputation.audit import Audit
from helpers.recomputation.element import Element
from helpers.recomputation.raw import Job, Trainings, counted


def check_attempts(audit: Audit, raw: Trainings) -> None:
    """Compare the bars and the table of attempts with attempts.jsonl."""
    section = audit.page.section("attempts")
    shown = [job for job in raw.jobs if [each["reason"] for each in job.attempts] != ["finished"]]
    if section is None:
        audit.require(not shown, audit.page, f"no section on the attempts of {[job.name for job in shown]}")
        return
    longest = max(sum(each["seconds"] for each in job.attempts) for job in shown)
    for bar, row, job in zip(section.all("div", "bar"), section.first("tbody").all("tr"), shown, strict=True):
        _check_bar(audit, bar, job, longest)
        _check_row(audit, row, job)
    audit.says(
        section.all("p")[-1],
        f"{{}} of {counted(len(raw.jobs), 'training task')} had an unfinished attempt",
        len(shown),
    )


def _check_bar(audit: Audit, bar: Element, job: Job, longest: float) -> None:
    audit.same(bar.first("span", "label").first("small"), job.name)
    texts = []
    for part, each in zip(bar.all("span", "part"), job.attempts, strict=True):
        values = each["attempt"], float(each["seconds"]), each["host"], each["reason"], each["reached"]
        template = "attempt {}, {} on {}: {} at step {}"
        audit.attribute(part, "title", template, *values)
        audit.percentage(part, "width", each["seconds"] / longest)
        texts.append(part["title"])
    audit.attribute(bar.first("span", "track"), "aria-label", f"{job.run} {job.name}: {', '.join(texts)}")
    audit.same(bar.first("span", "total"), "{}", _effective(job))


def _effective(job: Job) -> "float | None":
    total = sum(each["seconds"] for each in job.attempts)
    return None if job.simulated or not total else min(1.0, _productive(job) / total)


def _productive(job: Job) -> float:
    """Return the seconds of the training steps and evaluations of the result."""
    return float(job.summary["training_seconds"] + job.summary["seconds"]["evaluate"])


def _check_row(audit: Audit, row: Element, job: Job) -> None:
    attempts = job.attempts
    reasons = Counter(each["reason"] for each in attempts)
    texts = [f"{count} × {reason}" for reason, count in reasons.items()]
    total = sum(each["seconds"] for each in attempts)
    lost = None if job.simulated else max(0.0, total - _productive(job))
    repeated = sum(max(0, each["reached"] - after["from"]) for each, after in pairwise(attempts))
    cells = row.all("td")
    audit.own(row.first("th"), job.run), audit.same(row.first("small"), job.name)
    for cell, value in zip(
        cells, [len(attempts), None, repeated, lost, _between(job), _effective(job)], strict=True
    ):
        if cell is cells[1]:
            audit.same(cell, " and ".join(filter(None, [", ".join(texts[:-1]), texts[-1]])))
        else:
            audit.same(cell, "{}", value)


def _between(job: Job) -> float:
    times = [
        (datetime.fromisoformat(each["started"]), datetime.fromisoformat(each["ended"]))
        for each in job.attempts
    ]
    return sum(max(0.0, (start - end).total_seconds()) for (_, end), (start, _) in pairwise(times))
