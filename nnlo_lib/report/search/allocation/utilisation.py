"""Timeline of the fold tasks of a search, and utilization of its capacity."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from nnlo_lib.core.text_format import number
from nnlo_lib.report.formatting import format_duration
from nnlo_lib.report.search.allocation.capacity import training_capacity
from nnlo_lib.report.search.study_data import StudyData
from nnlo_lib.search.results.epoch_time import trained_seconds
from nnlo_lib.search.study.budget import union_length
from nnlo_lib.search.study.trial import Result

MAX_DRAWN_FOLD_TASKS = 3000  # fold tasks; above this number, no timeline is drawn


@dataclass(frozen=True)
class LaneSegment:
    """A fold task in its lane; `left` and `width` are in percent of the time without pauses."""

    lane: int
    left: float
    width: float
    css_class: str
    text: str


@dataclass(frozen=True)
class TrialTimeline:
    """Timeline of the fold tasks of a search.

    Attributes:
        lanes: number of lanes.
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
    lanes = _lanes(timed)
    found = training_capacity(data.study.folder, timed, lanes, data.study.search.parallel)
    return TrialTimeline(
        max(lanes, default=0) + 1, _lane_segments(data, timed, lanes) if len(timed) <= MAX_DRAWN_FOLD_TASKS else (), wall,
        found.utilization, found.description, _in_epochs(data, timed) / task_seconds,
        sum(result.seconds * result.cores for result in timed) / 3600,
        sum(result.seconds * result.gpus for result in timed) / 3600,
    )  # fmt: skip


def utilization_sentence(found: TrialTimeline) -> str:
    """Return sentences on the cost of the fold tasks and the utilization."""
    gpus = f", {number(found.gpu_hours, 3)} GPU hours" if found.gpu_hours else ""
    return (
        f"{number(found.core_hours, 3)} core hours{gpus} in {format_duration(found.wall_s)}. Fold tasks used {found.utilization:.1%} of "
        f"{found.capacity_text}, including their start-up; pauses of the whole search are excluded. Fold tasks spent "
        f"{found.epoch_share:.1%} of their time in epochs, and the rest in starting, saving and stopping."
    )


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
            lane, float(start), float(end - start), _segment_css_class(data, result), _segment_label(result)
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


def _segment_css_class(data: StudyData, result: Result) -> str:
    if result.status != "finished":
        return "failed"
    return "best" if result.fold_task.trial == data.best else f"turn-{result.fold_task.trial % 2}"


def _segment_label(result: Result) -> str:
    fold_task = result.fold_task
    return f"trial {fold_task.trial}, fold {fold_task.fold}, to epoch {fold_task.epochs}: {format_duration(result.seconds)}, {result.status}"


def _in_epochs(data: StudyData, timed: Sequence[Result]) -> float:
    """Return the seconds of training that the histories of the results record."""
    return sum(trained_seconds(data.study.snapshot, result) for result in timed)
