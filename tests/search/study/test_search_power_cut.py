"""A power cut at any moment of a search: the next driver makes the same trials, points and decisions."""

from pathlib import Path

import pytest
from helpers.power_cut import PowerCutRecorder
from helpers.simulated_search import Cluster, near_the_best, search, trial_files

from nnlo_lib.search.study.study import Study, replay, run_study

pytestmark = pytest.mark.exhaustive
WANTED = search(
    trials=5, parallel=2, order="fixed", folds={"k": 2}, fidelity={"name": "asha", "first": 1, "factor": 3}
)


def run(folder: Path) -> None:
    """Run the search to its end; unlike `simulated_search.run`, flush all files."""
    folder.mkdir(exist_ok=True)
    assert run_study(Study(folder, WANTED, 9, near_the_best, 2), Cluster(folder, 2))


def test_the_search_ends_with_the_same_trials(tmp_path):
    whole = tmp_path / "whole"
    whole.mkdir()
    with PowerCutRecorder(whole) as recorder:
        run(whole / "search")
    expected = trial_files(whole / "search")
    assert len(expected) == 5
    for number, state in enumerate(recorder.states):
        folder = tmp_path / str(number)
        folder.mkdir()
        state.write(folder)
        run(folder / "search")
        where = f"{state.kind} at {state.moment} ({state.event})"
        assert trial_files(folder / "search") == expected, where
        assert replay(folder / "search", WANTED, 9, near_the_best) == [], where
