"""Seconds by phase cover each rank from the start of its process to the publication, over all starts."""

import json
import os
import time
from datetime import datetime
from pathlib import Path

import pytest
from helpers.observed_training import store, watched
from helpers.training_process import training

from nnlo_lib.state.attempts import Attempt, append_attempt
from nnlo_lib.train.preemption import StopFlag
from nnlo_lib.train.rank import train_simulated


def summary_of(folder: Path) -> dict:
    return json.loads((folder / "summary.json").read_text())


def sum_of_phases(seconds: dict[str, float]) -> float:
    return sum(value for name, value in seconds.items() if name != "total")


def spans(folder: Path, name: str, rank: int) -> list[float]:
    """Return the seconds of the spans with a name, from the trace."""
    events = json.loads((folder / "trace.json").read_text())["traceEvents"]
    return [each["dur"] / 1e6 for each in events if each["name"] == name and each["pid"] == rank]


def process_start(job: Path, rank: int) -> float:
    """Return the Unix time at which the process of a rank started, from its identity in state/."""
    ticks = json.loads((job / f"state/ranks/{rank}").read_text())["started"]
    boot = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    return boot + ticks / os.sysconf("SC_CLK_TCK")


@pytest.mark.processes
def test_phases_cover_the_wall_time_from_process_start_to_publication(tmp_path):
    run = training(tmp_path, ranks=2)
    run.finish()
    summary = summary_of(run.job)
    [attempt] = [json.loads(line) for line in (run.job / "state/attempts.jsonl").read_text().splitlines()]
    published = datetime.fromisoformat(summary["finished"]).timestamp()
    for rank, seconds in enumerate(summary["seconds_by_rank"]):
        wall = published - process_start(run.job, rank)
        # `finished` is truncated to seconds.
        assert wall - 0.5 <= seconds["total"] <= wall + 2
        assert seconds["total"] <= attempt["seconds"]
        assert sum_of_phases(seconds) == pytest.approx(seconds["total"], rel=0.05, abs=0.3)
        assert [seconds["startup"]] == pytest.approx(spans(run.job, "startup", rank))
        # A wait for the other rank before the first step is start-up, not waiting.
        trained = sum(spans(run.job, "train", rank))
        assert seconds["wait"] + seconds["communication"] < trained + seconds["evaluate"] + 0.5


def test_each_start_counts_in_virtual_time(tmp_path):
    manifest = store(tmp_path / "store")
    for until in (1, 2, None):
        task = watched(tmp_path / "job", manifest, {}, ranks=3)
        assert train_simulated(type(task)(**{**vars(task), "until": until}), StopFlag())
    for rank, seconds in enumerate(summary_of(tmp_path / "job")["seconds_by_rank"]):
        starts = spans(tmp_path / "job", "startup", rank)
        assert len(starts) == 3
        assert sum(starts) > 0
        assert seconds["startup"] == pytest.approx(sum(starts), rel=1e-3)
        assert sum_of_phases(seconds) == pytest.approx(seconds["total"])


@pytest.mark.parametrize("algorithm", ["allreduce", "downpour", "dsgd"])
def test_a_repeated_publication_changes_no_figure(tmp_path, algorithm):
    manifest = store(tmp_path / "store")
    task = watched(tmp_path / "job", manifest, {}, ranks=3, algorithm={"name": algorithm})
    assert train_simulated(task, StopFlag())
    before = summary_of(task.folder)
    moment = "2026-01-01T00:00:00+00:00"
    ended = Attempt(
        1, moment, moment, 1.0, "h", None, "finished", None, 0, before["steps"], before["steps"], 3
    )
    append_attempt(task.state, ended)
    assert train_simulated(task, StopFlag())
    after = summary_of(task.folder)
    kept = "restarts", "bytes_sent", "messages_sent", "training_seconds", "samples_per_second"
    assert {key: after[key] for key in kept} == {key: before[key] for key in kept}
    # The last checkpoint does not contain the seconds of its own save.
    assert after["seconds"] == pytest.approx(before["seconds"], rel=0.01, abs=1e-4)


def test_training_time_axis_and_speed_have_one_clock(tmp_path):
    task = watched(tmp_path / "job", store(tmp_path / "store"), {}, ranks=2)
    assert train_simulated(task, StopFlag())
    summary = summary_of(task.folder)
    last = (task.folder / "history.csv").read_text().splitlines()
    row = dict(zip(last[0].split(","), last[-1].split(","), strict=True))
    assert summary["training_seconds"] == float(row["seconds"])
    assert summary["samples_per_second"] * summary["training_seconds"] == pytest.approx(int(row["samples"]))
