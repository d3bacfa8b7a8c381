"""Cost of a search: hours, the share of the available time in which it trained, and the hosts."""

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from nnlo_lib.config.paths import SearchPaths
from nnlo_lib.core.text_format import number, plural
from nnlo_lib.report.formatting import format_duration, listing
from nnlo_lib.report.search.study_data import StudyData
from nnlo_lib.report.sections.origin import hardware_texts
from nnlo_lib.search.cost_estimate import trained_seconds
from nnlo_lib.search.study.study import union_length
from nnlo_lib.search.study.trial import Result, resource_hours
from nnlo_lib.state.attempts import read_attempts
from nnlo_lib.state.training_records import read_rows


def cost_sentence(data: StudyData) -> str:
    """Return sentences on the cost of the ended fold tasks and the utilization; empty without fold tasks."""
    timed = [result for result in data.study.snapshot.results.values() if result.ended > result.started]
    if not timed:
        return ""
    wall_s = union_length(span for result in timed for span in result.spans)
    in_epochs = sum(trained_seconds(data.study.snapshot, result) for result in timed)
    gpu_hours = resource_hours(timed, "gpus")
    gpus = f", {number(gpu_hours, 3)} GPU hours" if gpu_hours else ""
    return (
        f"{number(resource_hours(timed, 'cores'), 3)} core hours{gpus} in {format_duration(wall_s)}. Fold tasks used {_utilization(data, timed)}, "
        "including their start-up; pauses of the whole search are excluded. Fold tasks spent "
        f"{in_epochs / sum(result.seconds for result in timed):.1%} of their time in epochs, and the rest in starting, saving and stopping."
    )


def _utilization(data: StudyData, timed: Sequence[Result]) -> str:
    """Return the share of the available time in which a fold task ran, and the definition of the available time.

    The available time is that of the MPI pool's allocations, plus the slots of fold tasks outside of them. An
    allocation contributes the time of its rank groups. Outside of allocations, the wall time in which fold tasks
    ran counts once per slot.
    """
    rows = read_rows(SearchPaths(data.study.folder).state.pool_utilization)
    outside = [
        result for result in timed if not any(row["begun"] <= result.started <= row["ended"] for row in rows)
    ]
    parts = [f"the time of {_rank_groups_text(rows)}"] if rows else []
    # Results within an allocation are already contained in its `trained`.
    trained_s = sum(row["trained"] for row in rows) + sum(result.seconds for result in outside)
    available_s = sum(_allocated(row) for row in rows)
    if outside:
        slots = _slots(data, outside)
        available_s += slots * union_length(span for result in outside for span in result.spans)
        parts.append(f"{slots} × wall time ({plural(slots, 'fold task')} could run at a time)")
    return f"{trained_s / available_s if available_s else 0.0:.1%} of {' and '.join(parts)}"


def _slots(data: StudyData, results: Sequence[Result]) -> int:
    """Return the number of fold tasks that could run at a time: of `search.parallel`, those that a host had cores for.

    At least as many could run as did. This number alone decides if each training saw only the cores of its own job.
    """
    # The tolerance of 1 ms lets a fold task follow its predecessor.
    spans = [span for result in results for span in result.spans]
    changes = sorted([*((start + 1e-3, 1) for start, _ in spans), *((end, -1) for _, end in spans)])
    ran = max(accumulate(change for _, change in changes))
    finished = (run.summary.get("hardware", {}) for run in data.trained_runs if run.paths.summary.exists())
    cores = [host["cores_available"] for hosts in finished for host in hosts.values()]
    parallel = data.study.search.parallel
    if cores:
        parallel = min(parallel, max(cores) // min(result.cores for result in results))
    return max(1, ran, parallel)


def _allocated(row: dict[str, Any]) -> float:
    """Return the seconds of an allocation, summed over the rank groups that were alive."""
    # The ratio of the two recorded numbers excludes lost rank groups, which `blocks` includes. Without any
    # training it is 0, and the time of all groups is the best estimate.
    seconds = (
        row["trained"] / row["utilisation"]
        if row["utilisation"]
        else row["blocks"] * (row["ended"] - row["begun"])
    )
    return float(seconds)


def _rank_groups_text(rows: Sequence[dict[str, Any]]) -> str:
    counts = sorted({row["blocks"] for row in rows})
    return plural(counts[0], "rank group") if len(counts) == 1 else f"{counts[0]} to {counts[-1]} rank groups"


def host_sentences(data: StudyData) -> list[str]:
    """Return the hosts on which the folds of the trials were trained last, with their number and known hardware.

    The summary of a training records the hardware: a search without any finished training shows host names only.
    """
    runs = data.trained_runs
    launched = [attempts[-1].host for run in runs if (attempts := read_attempts(run.paths.state.folder))]
    if not launched:
        return []
    counts = [f"{host} ({plural(launched.count(host), 'training')})" for host in dict.fromkeys(launched)]
    finished = [run for run in runs if run.paths.summary.exists()]
    hardware = hardware_texts(run.summary.get("hardware", {}) for run in finished)
    return [f"Trained on {listing(counts)}.", *(f"{text}." for text in hardware)]
