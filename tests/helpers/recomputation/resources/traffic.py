"""Recomputation of the table of messages and bytes."""

from collections import Counter
from statistics import fmean

from helpers.recomputation.audit import Audit
from helpers.recomputation.raw import Job, Trainings
from helpers.recomputation.sections.sheet import check_sheet

WITHOUT_VECTORS = ("control", "metrics", "telemetry")


def check_messages(audit: Audit, raw: Trainings) -> None:
    """Compare messages, bytes and staleness with the summaries."""
    check_sheet(audit, "traffic", raw, _value)


def _value(heading: str, jobs: list[Job]) -> object:
    messages = fmean(sum(job.summary["messages_sent"].values()) for job in jobs)
    sent = float(fmean(sum(job.summary["bytes_sent"].values()) for job in jobs))
    if heading in ("messages", "bytes"):
        return sent if heading == "bytes" else round(messages) or None
    if "vector" in heading:
        return _of_vectors(heading, jobs)
    if heading == "compression":
        return _compression(jobs[0].summary["config"]["compression"])
    return _staleness(heading, jobs)


def _of_vectors(heading: str, jobs: list[Job]) -> object:
    sums = {key: _vectors(jobs, key) for key in ("messages_sent", "bytes_sent")}
    if heading == "messages with vectors":
        any_message = any(job.summary["messages_sent"] for job in jobs)
        return round(sums["messages_sent"] / len(jobs)) if any_message else None
    assert heading == "bytes per message with a vector", heading
    return sums["bytes_sent"] / sums["messages_sent"] if sums["messages_sent"] else None


def _vectors(jobs: list[Job], key: str) -> int:
    """Return the sum over trainings without purposes other than vectors of the training."""
    return sum(
        count for job in jobs for purpose, count in job.summary[key].items() if purpose not in WITHOUT_VECTORS
    )


def _compression(settings: dict[str, object]) -> "str | None":
    rest = [f"{key} {value}" for key, value in settings.items() if key != "name"]
    return None if settings["name"] == "none" else ", ".join([str(settings["name"]), *rest])


def _staleness(heading: str, jobs: list[Job]) -> object:
    counts: Counter[int] = Counter()
    for job in jobs:
        counts.update(
            {int(value): count for value, count in job.summary["histograms"].get("staleness", {}).items()}
        )
    if not counts:
        return None
    if heading == "largest staleness":
        return max(counts)
    assert heading == "mean staleness", heading
    return sum(value * count for value, count in counts.items()) / counts.total()
