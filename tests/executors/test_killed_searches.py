"""A search with a randomly killed driver ends as the undisturbed search, and trains nothing twice."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from helpers.killed_searches import COMMANDS, Search, kills

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Search:
    """Run and return the search without kills."""
    search = Search(tmp_path_factory.mktemp("kills"), "undisturbed", "local").prepare()
    search.run()
    assert len(search.trials) == len(search.results) == 5
    assert not search.trained_twice
    assert search.replayed() == 0
    return search


# Killed drivers of the other two are in tests/slurm/test_slurm_submitit.py and tests/workflow/test_search_workflow.py, too.
DAYTIME = {"local", "mpi"}
EXECUTORS = [name if name in DAYTIME else pytest.param(name, marks=pytest.mark.nightly) for name in COMMANDS]


@pytest.mark.parametrize("executor", EXECUTORS)
def test_a_killed_search_ends_as_the_undisturbed_one(executor: str, undisturbed: Search) -> None:
    search = Search(undisturbed.folder, executor, executor).prepare()
    assert search.run(*kills(3, seed=1)) >= 2
    assert search.trials == undisturbed.trials
    assert search.results == undisturbed.results
    assert not search.trained_twice


def test_a_decision_that_does_not_follow_from_what_it_knew_is_told(
    undisturbed: Search, tmp_path: Path
) -> None:
    copy = replace(undisturbed, folder=shutil.copytree(undisturbed.folder, tmp_path / "copy", symlinks=True))
    path = copy.folder / "results/undisturbed/search/trials/0003.json"
    edited = json.loads(path.read_text())
    edited["point"]["train.optimizer.lr"] = 0.05
    path.write_text(json.dumps(edited))
    assert copy.replayed() == 1
