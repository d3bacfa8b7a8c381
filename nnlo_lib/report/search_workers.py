"""What the trainings of a search kept busy, and when."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from nnlo_lib.report.search_data import SearchData
from nnlo_lib.report.search_places import places
from nnlo_lib.report.words import number, seconds
from nnlo_lib.search.limits import covered
from nnlo_lib.search.trial import Leaf, Result

MOST = 3000  # trainings; more are not drawn


@dataclass(frozen=True)
class Piece:
    """A training in its lane: left and width in percent of all time."""

    lane: int
    left: float
    width: float
    look: str
    text: str


@dataclass(frozen=True)
class Workers:
    """Lanes of trainings. busy: share of the time of all places; in_epochs: share of the busy time."""

    lanes: int
    pieces: tuple[Piece, ...]
    wall: float
    busy: float
    of: str
    in_epochs: float
    core_hours: float
    gpu_hours: float


def workers(data: SearchData) -> Workers | None:
    """Lay out all trainings by time, without the pauses of the whole search; None if none has ended."""
    timed = [result for result in data.record.known.results.values() if result.ended > result.started]
    if not timed:
        return None
    timed.sort(key=lambda result: (result.started, result.leaf))
    wall = covered((result.started, result.ended) for result in timed)
    worked = sum(result.seconds for result in timed)
    lanes = _lanes(timed)
    found = places(data.record.folder, timed, lanes, data.record.search.parallel)
    return Workers(
        max(lanes, default=0) + 1, _pieces(data, timed, lanes) if len(timed) <= MOST else (), wall,
        found.busy, found.name, _in_epochs(data, timed) / worked,
        sum(result.seconds * result.cores for result in timed) / 3600,
        sum(result.seconds * result.gpus for result in timed) / 3600,
    )  # fmt: skip


def sentence(found: Workers) -> str:
    """Say how well the trainings filled the time."""
    gpus = f", {number(found.gpu_hours, 3)} GPU hours" if found.gpu_hours else ""
    return (
        f"{number(found.core_hours, 3)} core hours{gpus} in {seconds(found.wall)}. A training ran in {found.busy:.1%} of "
        f"{found.of}, start-up included and pauses of the whole search left out; "
        f"{found.in_epochs:.1%} of that were epochs, the rest starting, saving and stopping."
    )


def _lanes(timed: Sequence[Result]) -> list[int]:
    """Give each training the first lane that is free."""
    free: list[float] = []
    given = []
    for result in timed:
        lane = next((lane for lane, until in enumerate(free) if until <= result.started + 1e-3), len(free))
        free[lane : lane + 1] = [result.ended]
        given.append(lane)
    return given


def _pieces(data: SearchData, timed: Sequence[Result], lanes: Sequence[int]) -> tuple[Piece, ...]:
    starts, past = _clock(timed)
    total = past[-1]
    placed = [np.interp([result.started, result.ended], starts, past) / total * 100 for result in timed]
    return tuple(
        Piece(lane, float(start), float(end - start), _look(data, result), _said(result))
        for result, lane, (start, end) in zip(timed, lanes, placed, strict=True)
    )


def _clock(timed: Sequence[Result]) -> tuple[list[float], list[float]]:
    """Return moments, and how long something had been training until each."""
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


def _look(data: SearchData, result: Result) -> str:
    if result.status != "finished":
        return "failed"
    return "best" if result.leaf.trial == data.best else f"turn-{result.leaf.trial % 2}"


def _said(result: Result) -> str:
    leaf = result.leaf
    return f"trial {leaf.trial}, fold {leaf.fold}, to epoch {leaf.epochs}: {seconds(result.seconds)}, {result.status}"


def _in_epochs(data: SearchData, timed: Sequence[Result]) -> float:
    """Return the seconds that the histories count."""
    return sum(_trained(data, result) for result in timed)


def _trained(data: SearchData, result: Result) -> float:
    rungs = [epochs for epochs in data.record.known.rungs(result.leaf.trial) if epochs < result.leaf.epochs]
    below = data.record.known.results.get(Leaf(result.leaf.trial, result.leaf.fold, max(rungs, default=0)))
    last = [each.rows[-1]["seconds"] if each and each.rows else 0.0 for each in (result, below)]
    return max(0.0, last[0] - last[1])
