"""A search with a randomly killed driver ends as the undisturbed search, and trains nothing twice."""

import json
import os
import signal
from pathlib import Path

import pytest
from helpers.killed_searches import SETTINGS, WITHOUT_SLURM, Kill, Search, kills
from helpers.training_process import processes_of, wait

EPOCHS_OF_TASK = SETTINGS["train"]["epochs"]
SMALL = SETTINGS | {"search": SETTINGS["search"] | {"trials": 3}}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Search:
    """Run and return the search without kills."""
    search = Search(tmp_path_factory.mktemp("kills"), "undisturbed", "local", SMALL).prepare()
    search.run()
    assert len(search.trials) == len(search.results) == 3
    assert not search.trained_twice
    return search


REAL = {"local", "mpi"}
EXECUTORS = [
    pytest.param(name, marks=pytest.mark.real if name in REAL else pytest.mark.exhaustive)
    for name in WITHOUT_SLURM
]


@pytest.mark.parametrize("executor", EXECUTORS)
def test_a_killed_search_ends_as_the_undisturbed_one(executor: str, undisturbed: Search) -> None:
    search = Search(undisturbed.folder, executor, executor, SMALL).prepare()
    assert search.run(*kills(3, seed=1)[:2]) == 2
    assert search.trials == undisturbed.trials
    assert search.results == undisturbed.results
    assert not search.trained_twice


@pytest.mark.real
def test_a_job_of_several_fold_tasks_that_is_killed_in_the_middle_continues(undisturbed: Search) -> None:
    settings = SMALL | {"search": SMALL["search"] | {"tasks_per_job": 3}}
    search = Search(undisturbed.folder, "shared", "dag", settings).prepare()
    # The first job has two fold tasks (`parallel`): the first one has ended, and the second has begun.
    assert search.run(Kill(EPOCHS_OF_TASK + 1, 0.0, whole=True)) == 1
    assert search.trials == undisturbed.trials
    assert search.results == undisturbed.results
    assert not search.trained_twice
    assert [each["reason"] for each in search.attempts].count("finished") == 3
    jobs = [
        json.loads(path.read_text())
        for path in search.folder.glob("results/shared/search/trials/*/fold-0/tasks-8.json")
    ]
    assert sorted(jobs) == [[[0, 0, 8], [1, 0, 8]], [[2, 0, 8]]]


@pytest.mark.exhaustive
@pytest.mark.parametrize("executor", ["local", "mpi"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_ctrl_c_and_a_closed_terminal_save_all_trainings_and_the_same_command_resumes_them(
    executor: str, number: signal.Signals, tmp_path: Path
) -> None:
    """A terminal sends the signal to the driver and to all its child processes."""
    search = Search(tmp_path, "s", executor, SMALL).prepare()
    driver = search.start()
    wait("epochs", lambda: search.epochs_done >= 2, 600)
    os.killpg(driver.pid, number)
    assert driver.wait(600) == 75, search.said
    assert processes_of(tmp_path) == []
    saved = search.attempts
    assert {each["reason"] for each in saved} <= {"preempted", "finished"}
    assert "preempted" in {each["reason"] for each in saved}
    assert all(each["saved"] == each["reached"] for each in saved)
    search.run()
    assert len(search.results) == 3
    assert not search.trained_twice
