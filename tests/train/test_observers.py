"""Values of the resource monitor compared with the process's own; profiles contain the functions of the requested steps."""

import csv
import json
import pstats
import socket
import time
from itertools import pairwise

import psutil
import pytest
from helpers.observed_training import watched
from helpers.training_here import simulate

from nnlo_lib.config import Run
from nnlo_lib.train import resource_monitor as monitor
from nnlo_lib.train.resource_monitor import COLUMNS, ResourceMonitor, mean_and_max, merge_monitor_files


def table(path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def cpu_seconds(path) -> float:
    """Return the CPU time up to the last row; a sum over time, as a busy machine delays rows."""
    rows = [(float(row["seconds"]), float(row["cpu_percent"])) for row in table(path)]
    return sum(percent / 100 * (end - begin) for (begin, _), (end, percent) in pairwise(rows))


def cpu_seconds_of(folder, work) -> tuple[float, float]:
    """Return the CPU time during `work` in the rows of the monitor, and as the process reports it."""
    watch = ResourceMonitor(folder, 0, "cpu", 0.1)
    before = time.process_time()
    watch.begin("run")
    work()
    watch.close()
    merge_monitor_files(folder, folder / "monitor.csv")
    return cpu_seconds(folder / "monitor.csv"), time.process_time() - before


def use_a_second() -> None:
    end = time.process_time() + 1
    while time.process_time() < end:
        sum(range(1000))


def test_a_busy_process_uses_cpu_time_and_an_idle_one_does_not(tmp_path):
    watched_seconds, used = cpu_seconds_of(tmp_path / "busy", use_a_second)
    assert 0.2 * used < watched_seconds < 2 * used + 0.1
    idle_seconds, _ = cpu_seconds_of(tmp_path / "idle", lambda: time.sleep(0.5))
    assert idle_seconds < 0.3


def test_a_training_is_watched_and_its_summary_tells(tmp_path, small_store):
    task = simulate(watched(tmp_path / "job", small_store, {"monitor": 0.05}, ranks=2))
    rows = table(task.folder / "monitor.csv")
    assert tuple(rows[0]) == COLUMNS
    # Simulated ranks share one process.
    assert {(row["rank"], row["host"]) for row in rows} == {("0", socket.gethostname())}
    seconds = [float(row["seconds"]) for row in rows]
    assert seconds == sorted(seconds)
    assert seconds[0] == 0
    told = json.loads((task.folder / "summary.json").read_text())
    assert told["monitor"]["memory_bytes"]["max"] == pytest.approx(
        psutil.Process().memory_info().rss, rel=0.3
    )
    assert told["monitor"]["host_memory_bytes"]["max"] < psutil.virtual_memory().total
    assert "gpu_percent" not in told["monitor"]
    assert "monitor.csv" in told["outputs"]


def test_a_gpu_is_watched_where_there_is_one(tmp_path, monkeypatch):
    monkeypatch.setattr(monitor, "_gpu", lambda device: [37, 2**30])
    watch = ResourceMonitor(tmp_path, 3, "cuda:0", 10)
    watch.begin("run")
    watch.close()
    merge_monitor_files(tmp_path, tmp_path / "monitor.csv")
    found = mean_and_max(tmp_path / "monitor.csv")
    assert found["gpu_percent"] == {"mean": 37, "max": 37}
    assert found["gpu_memory_bytes"]["max"] == 2**30


def test_rows_of_all_ranks_are_joined_less_those_cut_short(tmp_path):
    (tmp_path / "monitor-00000.csv").write_text("101.5,0,a,10,1,1,1,,\n103.5,0,a,30,1,1,1,,\n105.5,0,a,3")
    (tmp_path / "monitor-00001.csv").write_text("102.5,1,b,20,1,1,1,,\n")
    merge_monitor_files(tmp_path, tmp_path / "monitor.csv")
    rows = table(tmp_path / "monitor.csv")
    assert [(row["seconds"], row["rank"], row["cpu_percent"]) for row in rows] == [
        ("0.0", "0", "10"), ("1.0", "1", "20"), ("2.0", "0", "30"),
    ]  # fmt: skip
    assert mean_and_max(tmp_path / "monitor.csv")["cpu_percent"] == {"mean": 20, "max": 30}


# Profiles


def profiled(folder, small_store, profile: object, **settings: object) -> list[str]:
    task = simulate(watched(folder, small_store, {"profile": profile}, **settings))
    found = sorted(path.name for path in task.folder.glob("profile-*"))
    assert set(found) <= json.loads((task.folder / "summary.json").read_text())["outputs"].keys()
    return found


def calls(path, function: str) -> int:
    """Return the number of calls of a function in a pstats file."""
    stats = pstats.Stats(str(path)).stats
    return sum(count for (_, _, name), (_, count, *_) in stats.items() if name == function)


@pytest.mark.parametrize(("first", "steps", "done"), [(3, 4, 4), (25, 10, 3)])
def test_cprofile_covers_the_steps_asked_for(tmp_path, small_store, first, steps, done):
    """The training has 27 steps, so a profile of 10 steps from step 25 ends at step 27."""
    wish = {"tool": "cprofile", "first": first, "steps": steps}
    stem = f"profile-cprofile-rank-0-steps-{first}-{first + done - 1}"
    assert profiled(tmp_path, small_store, wish) == [f"{stem}.prof", f"{stem}.txt"]
    assert calls(tmp_path / f"{stem}.prof", "_step") == done
    assert calls(tmp_path / f"{stem}.prof", "backward") >= done
    assert "backward" in (tmp_path / f"{stem}.txt").read_text()


def test_torch_counts_the_operators_of_the_steps(tmp_path, small_store):
    wish = {"tool": "torch", "first": 11, "steps": 6}
    stem = "profile-torch-rank-0-steps-11-16"
    assert profiled(tmp_path, small_store, wish, model={"name": "simplemlp"}) == [
        f"{stem}.json",
        f"{stem}.txt",
    ]
    events = json.loads((tmp_path / f"{stem}.json").read_text())["traceEvents"]
    products = [each for each in events if each.get("name") == "aten::linear"]
    assert len(products) == 6 * 4  # simplemlp has 4 linear layers
    assert "aten::addmm" in (tmp_path / f"{stem}.txt").read_text()


def test_a_stop_in_between_leaves_two_parts(tmp_path, small_store):
    wish = {"profile": {"tool": "cprofile", "first": 2, "steps": 20}}
    task = watched(tmp_path, small_store, wish, checkpoint={"every": "1 step"})
    simulate(task, 12)
    found = sorted(path.stem for path in tmp_path.glob("profile-*.prof"))
    (first, last), (again, end) = sorted([int(step) for step in stem.split("-")[-2:]] for stem in found)
    assert (first, again, end) == (2, last + 1, 21)


def test_what_cannot_be_profiled_is_refused():
    assert Run.model_validate({"observe": {"profile": "cprofile"}}).observe.profile.tool == "cprofile"
    with pytest.raises(ValueError, match="rank 1 does not exist"):
        Run.model_validate({"parallel": {"ranks": 1}, "observe": {"profile": {"rank": 1}}})
    simulated = {"ranks": 2, "transport": "simulated"}
    with pytest.raises(ValueError, match="cprofile cannot distinguish simulated ranks"):
        Run.model_validate({"parallel": simulated, "observe": {"profile": "cprofile"}})
    assert Run.model_validate({"parallel": simulated, "observe": {"profile": "torch"}})
