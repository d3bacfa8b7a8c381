"""Trace file of all ranks: valid and nested, consistent with the seconds by phase, without effect on the training."""

import itertools
import json
import pstats
import time
from collections import defaultdict
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace

import pytest
from helpers.chaos_report import find_differences
from helpers.observed_training import watched
from helpers.run_on_ranks import on_ranks
from helpers.training_here import simulate, train_with_mpi

from nnlo_lib.comm.simulated.communicator import SimulatedWorld
from nnlo_lib.state.attempts import Attempt, append_attempt
from nnlo_lib.state.chrome_trace import MAX_DETAIL_SPANS, TraceHeader, TraceWriter, write_chrome_trace
from nnlo_lib.state.training_records import read_rows
from nnlo_lib.train import phase_timer as clocks
from nnlo_lib.train.rank import train_rank
from nnlo_lib.train.rank_process import StopFlag
from nnlo_lib.train.task import Task

PROFILE = {"tool": "cprofile", "first": 2, "steps": 3}
OBSERVE = {"trace": True, "monitor": 0.1, "tensorboard": True, "profile": PROFILE}
SERVED = {"trace": True, "profile": {"tool": "cprofile", "rank": 0}}
PHASES = {"startup", "compute", "communication", "wait", "data", "evaluate", "checkpoint"}
STEP = {"step", "data", "forward", "backward", "optimizer", "on_gradient"}


def spans(job: Path, rank: int | None = None) -> list[dict]:
    events = json.loads((job / "trace.json").read_text())["traceEvents"]
    return [each for each in events if each["ph"] == "X" and rank in (None, each["pid"])]


def total(found: list[dict], phase: str) -> float:
    return sum(each["dur"] for each in found if each["cat"] == phase) / 1e6


def outermost(found: list[dict]) -> list[dict]:
    """Return the spans that no other span of the same process and thread contains.

    Fail if two spans overlap without nesting.
    """
    outer, open_ = [], defaultdict(list)
    for each in sorted(found, key=lambda each: (each["ts"], -each["dur"])):
        ends = open_[each["pid"], each["tid"]]
        while ends and ends[-1] <= each["ts"] + 2e-3:
            ends.pop()
        end = each["ts"] + each["dur"]
        assert not ends or end <= ends[-1] + 2e-3, f"{each} ends after what it began in"
        outer += [] if ends else [each]
        ends.append(end)
    return outer


def on_mpi(folder, store, observe, *calls, algorithm="allreduce"):
    """Train on two MPI ranks, with a stop after each number of calls of the stop flag; return the task."""
    parallel = {"ranks": 2, "transport": "mpi"}
    job = watched(folder / "job", store, observe, parallel=parallel, algorithm={"name": algorithm})
    for left in calls:
        assert not train_with_mpi(job, left)
    assert train_with_mpi(job)
    return job


@pytest.fixture(scope="module")
def observed(tmp_path_factory, small_store):
    return on_mpi(tmp_path_factory.mktemp("observed"), small_store, OBSERVE)


@pytest.fixture(scope="module")
def served(tmp_path_factory, small_store):
    return on_mpi(tmp_path_factory.mktemp("served"), small_store, SERVED, algorithm="downpour")


@pytest.mark.mpi
def test_observers_do_not_change_a_bit(observed, tmp_path, small_store):
    plain = on_mpi(tmp_path, small_store, {})
    assert find_differences(observed.folder, plain.folder) == []
    sent = [[row["bytes"] for row in read_rows(job.paths.state.history)] for job in (observed, plain)]
    assert sent[0] == sent[1]
    assert observed.run.hash == plain.run.hash


@pytest.mark.mpi
def test_a_trace_is_what_viewers_read(observed):
    trace = json.loads((observed.folder / "trace.json").read_text())
    assert trace["displayTimeUnit"] == "ms"
    for each in trace["traceEvents"]:
        assert {type(each["pid"]), type(each["tid"])} == {int}
        if each["ph"] == "X":
            assert each["dur"] >= 0
            assert each["cat"] in PHASES
        else:
            assert (each["ph"], set(each["args"])) in (("M", {"name"}), ("M", {"sort_index"}))
    processes = [each for each in trace["traceEvents"] if each["name"] == "process_name"]
    names = {each["pid"]: each["args"]["name"].split(" on ")[0] for each in processes}
    assert names == {0: "rank 0, worker", 1: "rank 1, worker"}


@pytest.mark.mpi
def test_the_trace_has_every_step_of_every_rank(observed):
    steps = read_rows(observed.paths.state.history)[-1]["step"]
    for rank in (0, 1):
        found = spans(observed.folder, rank)
        for name in STEP:
            assert sum(each["name"] == name for each in found) == pytest.approx(steps, abs=3), name
        assert sum(each["name"] == "all-reduce" for each in found) >= 0.9 * steps


@pytest.mark.mpi
@pytest.mark.parametrize("name", ["observed", "served"])
def test_sums_agree_with_the_stopwatch(name, request):
    job = request.getfixturevalue(name)
    top = outermost(spans(job.folder))
    assert {"train", "evaluate", "checkpoint"} <= {each["name"] for each in top}
    summary = json.loads((job.folder / "summary.json").read_text())
    for rank, seconds in enumerate(summary["seconds_by_rank"]):
        found = spans(job.folder, rank)
        apart = [each for each in found if each["cat"] in ("startup", "evaluate", "checkpoint")]
        rest = [
            each
            for each in found
            if not any(o["ts"] <= each["ts"] < o["ts"] + o["dur"] for o in apart) or each in apart
        ]
        assert total(rest, "evaluate") == pytest.approx(seconds["evaluate"], rel=0.01)
        assert total(rest, "checkpoint") == pytest.approx(seconds["checkpoint"], rel=0.01)
        # The trace omits very short spans.
        assert total(rest, "data") == pytest.approx(seconds["data"], abs=0.05)
        assert total(rest, "wait") == pytest.approx(seconds["wait"], abs=0.05)
        exchange = total(rest, "communication") - total(rest, "wait")
        # a rank that polls has many spans that are too short for the trace
        assert seconds["communication"] / 2 - 0.05 <= exchange <= seconds["communication"] + 0.05
        assert sum(each["dur"] for each in rest if each["name"] == "train") / 1e6 >= seconds["compute"]


@pytest.mark.mpi
def test_the_server_is_traced_and_profiled_while_it_serves(served):
    names = {each["name"] for each in spans(served.folder, 0)}
    assert {"probe", "receive", "update", "optimizer", "send", "wait for a message"} <= names
    assert not {"forward", "step"} & names
    stats = pstats.Stats(str(served.folder / "profile-cprofile-rank-0-serving.prof")).stats
    calls = {name: count for (_, _, name), (_, count, *_) in stats.items()}
    assert calls["serve"] == 1
    assert calls["update"] == read_rows(served.paths.state.history)[0]["step"]


@pytest.mark.mpi
def test_ranks_of_one_machine_agree_on_the_time(observed):
    """The all-reduce of an evaluation waits for all ranks: all are in the evaluation at one moment."""
    each_rank = [
        [each for each in spans(observed.folder, rank) if each["name"] == "evaluate"] for rank in (0, 1)
    ]
    assert [len(found) for found in each_rank] == [3, 3]
    for both in zip(*each_rank, strict=True):
        assert max(each["ts"] for each in both) < min(each["ts"] + each["dur"] for each in both)


@pytest.mark.mpi
def test_each_attempt_has_its_part(tmp_path, small_store):
    job = on_mpi(tmp_path, small_store, {"trace": True}, 7)
    parts = [[each for each in spans(job.folder) if each["tid"] == attempt] for attempt in (1, 2)]
    assert all({each["pid"] for each in part} == {0, 1} for part in parts)
    begins, ends = (
        [when(each["ts"] + each["dur"] * (when is max) for each in part) for part in parts]
        for when in (min, max)
    )
    assert 0 <= begins[0] < ends[0] < begins[1]
    outermost(spans(job.folder))


def test_simulated_ranks_are_traced_in_virtual_time(tmp_path, small_store):
    task = simulate(watched(tmp_path / "job", small_store, {"trace": True}, ranks=3))
    found = spans(task.folder)
    outermost(found)
    assert {each["pid"] for each in found} == {0, 1, 2}
    seconds = json.loads((task.folder / "summary.json").read_text())["seconds_by_rank"][1]
    assert total(spans(task.folder, 1), "wait") == pytest.approx(seconds["wait"], rel=0.2)


def test_without_a_request_only_coarse_spans_are_traced(tmp_path, small_store):
    task = simulate(watched(tmp_path / "job", small_store, {}))
    assert {each["name"] for each in spans(task.folder)} == {"startup", "train", "evaluate", "checkpoint"}
    assert not {"monitor.csv", "tensorboard"} & {path.name for path in task.folder.glob("*")}


def part(rank=0, attempt=1, start=0.0, shift=100.0, virtual=False) -> TraceHeader:
    return TraceHeader(rank, attempt, "worker", "h", start, shift, virtual)


def joined(folder) -> list[dict]:
    write_chrome_trace(folder, folder / "trace.json")
    return spans(folder)


def test_times_are_those_of_the_first_ranks_clock_and_torn_lines_are_left_out(tmp_path):
    for rank, shift in ((0, 100.0), (1, 93.0)):  # the clock of rank 1 is 7 s ahead
        trace = TraceWriter(tmp_path, part(rank=rank, start=107.0 - shift, shift=shift), fine=True)
        trace.detail_span("step", "compute", 108.0 - shift, 108.5 - shift)
        trace.close()
    with (tmp_path / "trace-00001-0001.jsonl").open("a") as file:
        file.write('["step","comp')
    assert [(each["ts"], each["dur"]) for each in joined(tmp_path)] == [(1e6, 5e5)] * 2


def test_virtual_attempts_follow_each_other(tmp_path):
    for attempt in (1, 2):
        trace = TraceWriter(tmp_path, part(attempt=attempt, shift=0.0, virtual=True), fine=False)
        trace.span("train", "compute", 0.0, 3.0)
        trace.close()
    assert [each["ts"] for each in joined(tmp_path)] == [0.0, 3e6]


def test_memory_and_disk_are_bounded(tmp_path):
    trace = TraceWriter(tmp_path, part(), fine=True)
    for number in range(MAX_DETAIL_SPANS + 1000):
        trace.detail_span("step", "compute", float(number), number + 0.5)
    trace.detail_span("glimpse", "compute", 0.0, 1e-6)
    trace.span("train", "compute", 0.0, 9e5)
    trace.close()
    lines = (tmp_path / part().file_name).read_text().splitlines()
    assert len(lines) == 1 + MAX_DETAIL_SPANS + 1 + 1
    assert "no more detail spans" in lines[-2]


def test_a_disk_that_refuses_the_trace_stops_nothing(tmp_path):
    (tmp_path / "observed").write_text("a file where a folder should be")
    trace = TraceWriter(tmp_path / "observed", part(), fine=True)
    trace.span("train", "compute", 0.0, 1.0)
    trace.close()


def test_clocks_of_different_machines_are_compared(monkeypatch):
    machines = itertools.count()
    boot = SimpleNamespace(exists=lambda: True, read_text=lambda: str(next(machines)))
    monkeypatch.setattr(clocks, "BOOT", boot)

    def program(comm):
        now = comm.now
        comm.now = lambda: now() + 5.0 * comm.rank
        return clocks.clock_offset_to_rank_0(comm)

    assert SimulatedWorld(3).run(program) == pytest.approx([0.0, 5.0, 10.0])


# Seconds by phase, from the start of the process to the publication, over all starts


def summary_of(folder: Path) -> dict:
    return json.loads((folder / "summary.json").read_text())


def sum_of_phases(seconds: dict[str, float]) -> float:
    return sum(value for name, value in seconds.items() if name != "total")


def lasted(folder: Path, name: str, rank: int) -> list[float]:
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
        assert [seconds["startup"]] == pytest.approx(lasted(job.folder, "startup", rank))


START_S = 100.0


def train_from_start(comm, text):
    """Train a task on this rank of the pool as if its process had started START_S seconds ago."""
    return train_rank(Task.parse(text), comm, StopFlag(), started=comm.now() - START_S)


def test_each_start_counts_in_virtual_time(tmp_path, small_store):
    for until in (1, 2, None):
        task = replace(watched(tmp_path / "job", small_store, {}, ranks=3), until=until)
        simulate(task)
    for rank, seconds in enumerate(summary_of(tmp_path / "job")["seconds_by_rank"]):
        starts = lasted(tmp_path / "job", "startup", rank)
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
