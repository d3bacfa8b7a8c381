"""What it cost the ranks of each run to agree: messages, bytes, and how old what they agreed on was."""

from collections import Counter
from collections.abc import Sequence

from nnlo_lib.report.job import Job, by_run
from nnlo_lib.report.sheet import Sheet, sheet
from nnlo_lib.report.tables import spread_of
from nnlo_lib.report.words import MISSING, number, size


def exchange(jobs: Sequence[Job]) -> Sheet:
    """Return messages, bytes, compression and staleness of each run, means over its jobs."""
    return sheet({run: _row(group) for run, group in by_run(jobs).items()})


def staleness(jobs: Sequence[Job]) -> Counter[int]:
    """Return how many updates of all jobs were how stale."""
    total: Counter[int] = Counter()
    for job in jobs:
        histogram = (job.summary.get("histograms") or {}).get("staleness") or {}
        total.update({int(value): count for value, count in histogram.items()})
    return total


def _row(jobs: Sequence[Job]) -> dict[str, str]:
    sent = spread_of([sum(job.summary["bytes_sent"].values()) for job in jobs]).mean
    counts = [job.messages for job in jobs if job.messages is not None]
    return {**_messages(counts, sent), "compression": _compression(jobs[0]), **_staleness(staleness(jobs))}


def _messages(counts: Sequence[int], sent: float) -> dict[str, str]:
    mean = spread_of(counts).mean if counts else 0
    per = size(sent / mean) if mean else MISSING
    return {"messages": f"{mean:,.0f}" if mean else MISSING, "bytes": size(sent), "bytes per message": per}


def _compression(job: Job) -> str:
    """Return the name of a compression and its settings: top_k, fraction 0.01."""
    settings = job.setting("compression")
    if settings.get("name", "none") == "none":
        return MISSING
    return ", ".join(
        [settings["name"], *(f"{key} {value}" for key, value in settings.items() if key != "name")]
    )


def _staleness(counts: Counter[int]) -> dict[str, str]:
    if not counts:
        return {}
    mean = sum(value * count for value, count in counts.items()) / counts.total()
    return {"mean staleness": number(mean, 3), "largest staleness": f"{max(counts):,}"}
