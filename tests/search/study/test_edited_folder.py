"""A search whose files or settings were edited after its end."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from helpers.simulated_search import draw, near_the_best, run, search

from nnlo_lib.core.errors import UserError
from nnlo_lib.search.study.study import Study
from nnlo_lib.search.study.trial import FoldTask, read_result, read_trial

LAST = FoldTask(3, 0, 9)


def study(folder: Path, **settings: Any) -> Study:
    wanted = search(**{"trials": 4, "order": "fixed"} | settings)
    return Study(folder, wanted, 9, near_the_best, wanted.parallel)


def test_only_more_trials_and_deleted_results_continue_a_search_that_has_ended(tmp_path: Path) -> None:
    run(tmp_path, search(trials=4, order="fixed"), propose=near_the_best)
    for changes in ({}, {"trials": 2}, {"parallel": 9}, {"parallel": 1}):
        assert study(tmp_path, **changes).has_ended
    assert not study(tmp_path, trials=5).has_ended
    LAST.result_path(tmp_path).unlink()
    assert not study(tmp_path).has_ended


def recorded(folder: Path, point: dict[str, Any]) -> None:
    """Record a point in the last trial's result, and delete the trial's file."""
    result = read_result(folder, LAST)
    assert result
    replace(result, point=point).write(folder)
    (folder / "trials/0003.json").unlink()


@pytest.mark.parametrize("point", [{"train.optimizer.lr": 0.7, "train.batch_size": 16}, None])
def test_a_new_trial_does_not_adopt_the_result_of_another_point(point: Any, tmp_path: Path) -> None:
    run(tmp_path, search(trials=4))
    recorded(tmp_path, point)
    with pytest.raises(
        UserError, match=r"epochs-9.json: the result of an earlier trial 3 with another point"
    ):
        Study(tmp_path, search(trials=4), 9, draw, 3).decide()
    assert not (tmp_path / "trials/0003.json").exists()


def test_a_new_trial_with_the_recorded_point_uses_its_result(tmp_path: Path) -> None:
    run(tmp_path, search(trials=4))
    text = (tmp_path / "trials/0003.json").read_text()
    recorded(tmp_path, read_trial(tmp_path, 3).point)
    assert not run(tmp_path, search(trials=4)).started
    assert json.loads((tmp_path / "trials/0003.json").read_text())["point"] == json.loads(text)["point"]
