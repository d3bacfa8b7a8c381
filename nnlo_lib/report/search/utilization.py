"""Utilization of the capacity of a search: the timeline of its fold tasks, the time that was available, and the hosts."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from nnlo_lib.config.paths import SearchPaths
from nnlo_lib.core.text_format import number, plural
from nnlo_lib.report.figure import TRIAL_PARAMS, Figure, inline_data
from nnlo_lib.report.formatting import format_duration, listing
from nnlo_lib.report.search.study_data import StudyData
from nnlo_lib.report.sections.origin import hardware_texts
from nnlo_lib.search.cost_estimate import trained_seconds
from nnlo_lib.search.study.study import union_length
from nnlo_lib.search.study.trial import Result
from nnlo_lib.state.attempts import read_attempts
from nnlo_lib.state.finished_run import FinishedRun
from nnlo_lib.state.training_records import read_rows

KINDS = ("best trial", "even trials", "odd trials", "failed or unwanted")
MAX_DRAWN_FOLD_TASKS = 3000  # fold tasks; above this number, no timeline is drawn


@dataclass(frozen=True)
class LaneSegment:
    """A fold task in its lane; `left` and `width` are in percent of the time without pauses."""

    lane: int
    left: float
    width: float
    kind: str
    trial: int
    text: str


@dataclass(frozen=True)
class TrialTimeline:
    """Timeline of the fold tasks of a search.

    Attributes:
        segments: one per fold task; empty if there are more than MAX_DRAWN_FOLD_TASKS.
        wall_s: seconds in which at least one fold task ran.
        utilization: share of the available time in which a fold task ran.
        capacity_text: the definition of the available time.
        epoch_share: share of the fold tasks' time that was spent in epochs.
        core_hours: cores times hours of all fold tasks.
        gpu_hours: GPUs times hours of all fold tasks.
    """

    lanes: int
    segments: tuple[LaneSegment, ...]
    wall_s: float
    utilization: float
    capacity_text: str
    epoch_share: float
    core_hours: float
    gpu_hours: float


def trial_timeline(data: StudyData) -> TrialTimeline | None:
    """Return the timeline of all ended fold tasks without the search's pauses; None without fold tasks."""
    timed = [result for result in data.study.snapshot.results.values() if result.ended > result.started]
    if not timed:
        return None
    # `_lanes` and `_active_time` require results in order of their starts.
    timed.sort(key=lambda result: (result.started, result.fold_task))
    wall = union_length(span for result in timed for span in result.spans)
    task_seconds = sum(result.seconds for result in timed)
    epoch_seconds = sum(trained_seconds(data.study.snapshot, result) for result in timed)
    lanes = _lanes(timed)
    utilization, capacity = _utilization(data.study.folder, timed, lanes, data.study.search.parallel)
    return TrialTimeline(
        max(lanes, default=0) + 1, _lane_segments(data, timed, lanes) if len(timed) <= MAX_DRAWN_FOLD_TASKS else (), wall,
        utilization, capacity, epoch_seconds / task_seconds,
        sum(result.seconds * result.cores for result in timed) / 3600,
        sum(result.seconds * result.gpus for result in timed) / 3600,
    )  # fmt: skip


def _lanes(timed: Sequence[Result]) -> list[int]:
    """Return the lane of each fold task: the first that is free at its start."""
    free: list[float] = []
    lanes = []
    for result in timed:
        # The tolerance of 1 ms lets a fold task follow its predecessor in the same lane.
        lane = next((index for index, until in enumerate(free) if until <= result.started + 1e-3), len(free))
        # The slice replaces the end of a lane, or appends a new lane.
        free[lane : lane + 1] = [result.ended]
        lanes.append(lane)
    return lanes


def _lane_segments(data: StudyData, timed: Sequence[Result], lanes: Sequence[int]) -> tuple[LaneSegment, ...]:
    starts, past = _active_time(timed)
    total = past[-1]
    # Maps clock time to the time without pauses, so that a search resumed days later stays readable.
    placed = [np.interp([result.started, result.ended], starts, past) / total * 100 for result in timed]
    return tuple(
        LaneSegment(
            lane,
            float(start),
            float(end - start),
            _segment_kind(data, result),
            result.fold_task.trial,
            f"trial {result.fold_task.trial}, fold {result.fold_task.fold}, to epoch {result.fold_task.epochs}: "
            f"{format_duration(result.seconds)}, {result.status}",
        )
        for result, lane, (start, end) in zip(timed, lanes, placed, strict=True)
    )


def _active_time(timed: Sequence[Result]) -> tuple[list[float], list[float]]:
    """Return points in time, and for each the seconds before it in which at least one fold task ran."""
    moments, past, until = [timed[0].started], [0.0], timed[0].started
    for result in timed:
        if result.started > until:
            moments.append(result.started)
            past.append(past[-1])
            until = result.started
        if result.ended > until:
            moments.append(result.ended)
            past.append(past[-1] + result.ended - until)
            until = result.ended
    return moments, past


def timeline_figure(found: TrialTimeline) -> Figure:
    """Return the fold tasks over time, one lane per concurrent fold task."""
    table = pd.DataFrame(
        [
            (part.lane, part.left, part.left + part.width, part.kind, part.trial, part.text)
            for part in found.segments
        ],
        columns=["lane", "start", "end", "kind", "trial", "text"],
    )
    colors = {
        "domain": list(KINDS),
        "range": ["var(--run-0)", "var(--part-3)", "var(--part-2)", "var(--run-5)"],
    }
    spec = {
        "data": inline_data(table), "params": TRIAL_PARAMS, "width": "container", "height": 18 * found.lanes,
        "mark": {"type": "bar", "cursor": "pointer"},
        "encoding": {
            "y": {"field": "lane", "type": "ordinal", "axis": None},
            "x": {"field": "start", "type": "quantitative", "scale": {"domain": [0, 100], "padding": 0}, "title": "% of the time without pauses"}, "x2": {"field": "end"},
            "color": {"field": "kind", "scale": colors, "legend": {"title": None, "orient": "top", "columns": 2}},
            "tooltip": [{"field": "text", "title": "fold task"}],
        },
    }  # fmt: skip
    return Figure("Fold tasks over time", "", f"{len(table)} fold tasks in {found.lanes} lanes.", spec)


def _segment_kind(data: StudyData, result: Result) -> str:
    if result.status != "finished":
        return KINDS[3]
    return KINDS[0] if result.fold_task.trial == data.best else KINDS[1 + result.fold_task.trial % 2]


def utilization_sentence(found: TrialTimeline) -> str:
    """Return sentences on the cost of the fold tasks and the utilization."""
    gpus = f", {number(found.gpu_hours, 3)} GPU hours" if found.gpu_hours else ""
    return (
        f"{number(found.core_hours, 3)} core hours{gpus} in {format_duration(found.wall_s)}. Fold tasks used {found.utilization:.1%} of "
        f"{found.capacity_text}, including their start-up; pauses of the whole search are excluded. Fold tasks spent "
        f"{found.epoch_share:.1%} of their time in epochs, and the rest in starting, saving and stopping."
    )


def _utilization(
    folder: Path, timed: Sequence[Result], lanes: Sequence[int], parallel: int
) -> tuple[float, str]:
    """Return the share of the available time in which a fold task ran, and the definition of the available time.

    The available time is that of the MPI pool's allocations, plus the slots of fold tasks outside of them. An
    allocation contributes the time of its rank groups. Outside of allocations, the wall time in which fold tasks
    ran counts once per slot; the number of slots is `parallel`, or the highest lane + 1 if that is larger.

    Args:
        timed: results with a start and an end.
        lanes: lane of each result; results in the same lane do not overlap.
        parallel: search.parallel of the configuration.
    """
    rows = read_rows(SearchPaths(folder).state.pool_utilization)
    outside = [
        (result, lane)
        for result, lane in zip(timed, lanes, strict=True)
        if not any(row["begun"] <= result.started <= row["ended"] for row in rows)
    ]
    slots = max([parallel, *(1 + lane for _, lane in outside)])
    wall = union_length(span for result, _ in outside for span in result.spans)
    parts = [f"the time of {_rank_groups_text(rows)}"] if rows else []
    counted = f"{slots} (search.parallel)" if slots == parallel else plural(slots, "slot")
    parts += [f"{counted} × wall time"] if outside else []
    # Results within an allocation are already contained in its `trained`.
    trained_s = sum(row["trained"] for row in rows) + sum(result.seconds for result, _ in outside)
    available_s = sum(_allocated(row) for row in rows) + slots * wall
    return trained_s / available_s if available_s else 0.0, " and ".join(parts)


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
    fold_tasks = (decision.task for trial in data.study.snapshot.trials for decision in trial.decisions)
    runs = [*map(FinishedRun, dict.fromkeys(task.run_folder(data.study.folder) for task in fold_tasks))]
    launched = [attempts[-1].host for run in runs if (attempts := read_attempts(run.paths.state.folder))]
    if not launched:
        return []
    counts = [f"{host} ({plural(launched.count(host), 'training')})" for host in dict.fromkeys(launched)]
    finished = [run for run in runs if run.paths.summary.exists()]
    hardware = hardware_texts(run.summary.get("hardware", {}) for run in finished)
    return [f"Trained on {listing(counts)}.", *(f"{text}." for text in hardware)]
