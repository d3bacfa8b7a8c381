"""Fold tasks as local processes: restarts after a kill, failures to start, and orderly stops."""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from helpers.training_process import wait

from nnlo_lib.config import Experiment
from nnlo_lib.core.errors import UserError
from nnlo_lib.executors.local import LocalExecutor
from nnlo_lib.search.cost_estimate import local_parallel
from nnlo_lib.search.study.trial import FoldTask, Result, read_result
from nnlo_lib.state.attempts import Attempt, append_attempt

pytestmark = pytest.mark.processes

LEAF = FoldTask(0, 0, 3)
RESULT = f"""
from pathlib import Path
from nnlo_lib.search.study.trial import FoldTask, Result
Result({LEAF!r}, "finished").write(Path("."))
"""


class Scripted(LocalExecutor):
    """Local executor that runs scripts in place of trainings; it repeats the last script."""

    def __init__(self, folder: Path, *scripts: str) -> None:
        super().__init__(folder, "mpiexec", SimpleNamespace(first=""))
        self._scripts, self.attempts = list(scripts), []

    def _command(self, fold_task: FoldTask) -> list[str]:
        self.attempts.append(self._restarts.record_start(fold_task))
        script = self._scripts.pop(0) if len(self._scripts) > 1 else self._scripts[0]
        return [sys.executable, "-c", script]


def killed(state: Path, reached: int) -> Attempt:
    """Return the record of an attempt that was killed at a step."""
    number = 1 if not state.exists() else len((state / "attempts.jsonl").read_text().splitlines()) + 1
    return Attempt(number, "", "", 1.0, "here", None, "killed", "killed", 0, reached, reached, 1)


def test_a_fold_task_that_is_killed_is_started_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    local = Scripted(Path("."), "import os; os.kill(os.getpid(), 9)", RESULT)
    local.start(LEAF)
    assert local.wait()
    assert read_result(Path("."), LEAF) is None
    assert local.wait()
    assert read_result(Path("."), LEAF) == Result(LEAF, "finished")
    assert local.attempts == [1, 2], "the second is told that it is not the first"


def test_a_fold_task_that_never_begins_ends_the_search_and_says_why(tmp_path: Path) -> None:
    local = Scripted(tmp_path, "raise SystemExit('no such library')")
    local.start(LEAF)
    assert local.wait()
    assert local.wait()
    message = r"3 consecutive starts ended .* \(no such library; see .*trial\.log\)"
    with pytest.raises(UserError, match=message):
        local.wait()


def test_a_fold_task_that_trains_is_started_again_without_end(tmp_path: Path) -> None:
    """The executor restarts a fold task without limit while its attempts record further steps."""
    local, state = Scripted(tmp_path, "raise SystemExit(1)"), LEAF.run_folder(tmp_path) / "state"
    state.mkdir(parents=True)
    (state / "attempts.jsonl").touch()
    local.start(LEAF)
    for step in range(6):
        append_attempt(state, killed(state, step))
        assert local.wait()
    assert local.attempts == list(range(1, 8))
    local.stop()


@pytest.mark.parametrize(
    ("script", "error"), [("raise SystemExit(75)", None), ("print('full'); raise SystemExit(2)", r"cannot be trained: the command refused its input \(full; see ")]
)  # fmt: skip
def test_one_that_stops_stops_all(tmp_path: Path, script: str, error: str | None) -> None:
    local = Scripted(tmp_path, "import time; print('up', flush=True); time.sleep(600)", script)
    local.start(FoldTask(1, 0, 3))
    log = FoldTask(1, 0, 3).run_folder(tmp_path) / "trial.log"
    wait("the other one is up", lambda: "up" in log.read_text())
    local.start(LEAF)
    if error:
        with pytest.raises(UserError, match=error):
            local.wait()
    else:
        assert not local.wait()
    assert not local._running


@pytest.mark.parametrize(
    ("search", "ranks", "cores", "count"),
    [({}, 2, 2, 1), ({}, 2, 5, 2), ({}, 1, 64, 4), ({}, 8, 2, 1), ({"parallel": 4}, 2, 2, 4), ({"order": "fixed"}, 2, 2, 4)],
)  # fmt: skip
def test_trainings_in_parallel_have_cores_of_their_own_unless_a_number_is_written(
    search: dict[str, Any], ranks: int, cores: int, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda process: set(range(cores)))
    settings = {"parallel": {"ranks": ranks}, "search": {"space": {"train.batch_size": [8, 9]}, **search}}
    assert local_parallel(Experiment.model_validate(settings)) == count
