"""The communication cost of each run: messages, bytes, compression and staleness."""

from collections import Counter
from collections.abc import Sequence

from nnlo_lib.report.finished_job import group_by_run
from nnlo_lib.report.formatting import MISSING, RunTable, format_bytes, number, run_table
from nnlo_lib.report.tables import spread_of
from nnlo_lib.state.finished_run import FinishedRun


def communication_table(jobs: Sequence[FinishedRun]) -> RunTable:
    """Return messages, bytes, compression and staleness of each run, means over its jobs."""
    return run_table({run: _row(group) for run, group in group_by_run(jobs).items()})


def staleness(jobs: Sequence[FinishedRun]) -> Counter[int]:
    """Return the number of updates of all jobs by staleness."""
    total: Counter[int] = Counter()
    for job in jobs:
        # JSON turns the integer keys of the histogram into strings; older summaries have no histograms.
        histogram = (job.summary.get("histograms") or {}).get("staleness") or {}
        total.update({int(value): count for value, count in histogram.items()})
    return total


def _row(jobs: Sequence[FinishedRun]) -> dict[str, str]:
    sent = spread_of([sum(job.summary["bytes_sent"].values()) for job in jobs]).mean
    counts = [job.messages for job in jobs if job.messages is not None]
    # All jobs of a run have the same configuration.
    return {**_messages(counts, sent), "compression": _compression(jobs[0]), **_staleness(staleness(jobs))}


def _messages(counts: Sequence[int], sent: float) -> dict[str, str]:
    mean = spread_of(counts).mean if counts else 0
    per = format_bytes(sent / mean) if mean else MISSING
    return {
        "messages": f"{mean:,.0f}" if mean else MISSING,
        "bytes": format_bytes(sent),
        "bytes per message": per,
    }


def _compression(job: FinishedRun) -> str:
    """Return the name of a compression and its settings: `top_k, fraction 0.01`."""
    settings = job.config_section("compression")
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
