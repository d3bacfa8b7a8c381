"""The communication cost of each run: messages, bytes, compression and staleness."""

from collections import Counter
from collections.abc import Sequence

from nnlo_lib.core.text_format import MISSING, number
from nnlo_lib.report.finished_job import group_by_run
from nnlo_lib.report.formatting import RunTable, format_bytes, run_table
from nnlo_lib.report.tables import spread_of
from nnlo_lib.state.finished_run import FinishedRun

# Purposes of messages that carry votes, requests, sums for metrics, or measurements of the algorithm.
PURPOSES_WITHOUT_VECTORS = ("control", "metrics", "telemetry")


def communication_table(jobs: Sequence[FinishedRun]) -> RunTable:
    """Return messages, bytes, compression and staleness of each run, means over its jobs."""
    return run_table({run: _row(group) for run, group in group_by_run(jobs).items()})


def staleness(jobs: Sequence[FinishedRun]) -> Counter[int]:
    """Return the number of updates of all jobs by staleness."""
    total: Counter[int] = Counter()
    for job in jobs:
        # JSON turns the integer keys of the histogram into strings.
        histogram = job.recorded("histograms").get("staleness", {})
        total.update({int(value): count for value, count in histogram.items()})
    return total


def _row(jobs: Sequence[FinishedRun]) -> dict[str, str]:
    # All jobs of a run have the same configuration.
    return {**_messages(jobs), "compression": _compression(jobs[0]), **_staleness(staleness(jobs))}


def _messages(jobs: Sequence[FinishedRun]) -> dict[str, str]:
    sent = spread_of([sum(job.summary["bytes_sent"].values()) for job in jobs]).mean
    counted = [job for job in jobs if job.messages]
    messages = spread_of([job.messages or 0 for job in counted]).mean if counted else 0
    vectors = sum(_of_vectors(job.summary["messages_sent"]) for job in counted)
    size = sum(_of_vectors(job.summary["bytes_sent"]) for job in counted)
    return {
        "messages": f"{messages:,.0f}" if messages else MISSING,
        "messages with vectors": f"{vectors / len(counted):,.0f}" if counted else MISSING,
        "bytes": format_bytes(sent),
        "bytes per message with a vector": format_bytes(size / vectors) if vectors else MISSING,
    }


def _of_vectors(counts: dict[str, int]) -> int:
    """Return the sum of the counts that belong to vectors of the training."""
    return sum(count for purpose, count in counts.items() if purpose not in PURPOSES_WITHOUT_VECTORS)


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
