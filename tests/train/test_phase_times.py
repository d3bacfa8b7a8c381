"""Seconds by phase cover each rank from the start of its process to the publication, over all starts."""

import json
import time
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest
from helpers.observed_training import watched
from helpers.run_on_ranks import on_ranks
from helpers.training_here import simulate

from nnlo_lib.state.attempts import Attempt, append_attempt
from nnlo_lib.train.rank import train_rank
from nnlo_lib.train.rank_process import StopFlag
from nnlo_lib.train.task import Task


def summary_of(folder: Path) -> dict:
    return json.loads((folder / "summary.json").read_text())


def sum_of_phases(seconds: dict[str, float]) -> float:
    return sum(value for name, value in seconds.items() if name != "total")


def spans(folder: Path, name: str, rank: int) -> list[float]:
    """Return the seconds of the spans with a name, from the trace."""
    events = json.loads((folder / "trace.json").read_text())["traceEvents"]
    return [each["dur"] / 1e6 for each in events if each["name"] == name and each["pid"] == rank]


@pytest.mark.mpi
def test_phases_cover_the_wall_time_from_process_start_to_publication(tmp_path, small_store):
    """A rank's start is that of its process, which is older here: the pool of MPI ranks passes the start of the task."""
    job = watched(tmp_path / "job", small_store, {}, parallel={"ranks": 2, "transport": "mpi"})
    begun = time.time()
    assert all(on_ranks(train_from_start, "mpi", 2, job.text))
    summary = summary_of(job.folder)
    published = datetime.fromisoformat(summary["finished"]).timestamp()
    assert begun - 1 <= published <= time.time()
    for rank, seconds in enumerate(summary["seconds_by_rank"]):
        # `finished` is truncated to seconds.
        assert START_S <= seconds["startup"] < seconds["total"] <= START_S + time.time() - begun
        assert sum_of_phases(seconds) <= seconds["total"]
        assert [seconds["startup"]] == pytest.approx(spans(job.folder, "startup", rank))


START_S = 100.0


def train_from_start(comm, text):
    """Train a task on this rank of the pool as if its process had started START_S seconds ago."""
    return train_rank(Task.parse(text), comm, StopFlag(), started=comm.now() - START_S)


def test_each_start_counts_in_virtual_time(tmp_path, small_store):
    for until in (1, 2, None):
        task = replace(watched(tmp_path / "job", small_store, {}, ranks=3), until=until)
        simulate(task)
    for rank, seconds in enumerate(summary_of(tmp_path / "job")["seconds_by_rank"]):
        starts = spans(tmp_path / "job", "startup", rank)
        assert len(starts) == 3
        assert sum(starts) > 0
        assert seconds["startup"] == pytest.approx(sum(starts), rel=1e-3)
        assert sum_of_phases(seconds) == pytest.approx(seconds["total"])


@pytest.mark.parametrize("algorithm", ["allreduce", "downpour", "dsgd"])
def test_a_repeated_publication_changes_no_figure(tmp_path, small_store, algorithm):
    task = simulate(watched(tmp_path / "job", small_store, {}, ranks=3, algorithm={"name": algorithm}))
    before = summary_of(task.folder)
    moment = "2026-01-01T00:00:00+00:00"
    ended = Attempt(
        1, moment, moment, 1.0, "h", None, "finished", None, 0, before["steps"], before["steps"], 3
    )
    append_attempt(task.state, ended)
    simulate(task)
    after = summary_of(task.folder)
    kept = "restarts", "bytes_sent", "messages_sent", "training_seconds", "samples_per_second"
    assert {key: after[key] for key in kept} == {key: before[key] for key in kept}
    # The last checkpoint does not contain the seconds of its own save.
    assert after["seconds"] == pytest.approx(before["seconds"], rel=0.01, abs=1e-4)


def test_training_time_axis_and_speed_have_one_clock(tmp_path, small_store):
    task = simulate(watched(tmp_path / "job", small_store, {}, ranks=2))
    summary = summary_of(task.folder)
    last = (task.folder / "history.csv").read_text().splitlines()
    row = dict(zip(last[0].split(","), last[-1].split(","), strict=True))
    assert summary["training_seconds"] == float(row["seconds"])
    assert summary["samples_per_second"] * summary["training_seconds"] == pytest.approx(int(row["samples"]))
