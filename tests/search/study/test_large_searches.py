"""What a search of thousands of trials keeps from one decision to the next equals what its files give."""

import json
from pathlib import Path
from statistics import median
from typing import Any
from unittest import mock

import pytest
from helpers.simulated_search import Cluster, near_the_best, run_killed, search

from nnlo_lib.config.paths import SearchPaths
from nnlo_lib.core.errors import UserError
from nnlo_lib.search.pruners import _median_without
from nnlo_lib.search.samplers.base import observe
from nnlo_lib.search.space.space import SearchSpace
from nnlo_lib.search.study.snapshot import StudySnapshot, running_average
from nnlo_lib.search.study.study import Study, replay, run_study
from nnlo_lib.search.study.trial import (
    FoldTask,
    SchedulingDecision,
    Trial,
    read_trial,
    read_trials,
    write_trial,
)

KINDS = [
    ({"name": "full"}, {}),
    ({"name": "asha", "first": 1, "factor": 2}, {"k": 2}),
    ({"name": "hyperband", "first": 1, "factor": 3}, {}),
    ({"name": "median", "grace": 1, "every": 2, "trials": 2}, {"k": 3, "in_turn": True, "prune": 0.3}),
]


def everything(known: StudySnapshot) -> list[Any]:
    """Return all values that a decision may use."""
    rungs = [(trial.number, epochs) for trial in known.trials for epochs in known.rungs(trial.number)]
    means = [(known.mean_value(*each), known.mean_value(*each, running_average)) for each in rungs]
    finals = [(known.final_value(trial.number), known.has_failed(trial.number)) for trial in known.trials]
    observed = observe(SearchSpace(known.search.space), known)
    return [means, finals, known.complete_trials, known.rung_leaders, known.best_trial(), observed]


@pytest.mark.parametrize("order", ["fixed", "as_finished"])
@pytest.mark.parametrize(("fidelity", "folds"), KINDS, ids=lambda each: each.get("name", ""))
def test_what_is_kept_from_decision_to_decision_equals_what_the_files_give(
    order: str, fidelity: Any, folds: Any, tmp_path: Path
) -> None:
    wanted = search(order=order, fidelity=fidelity, folds=folds, objective={"max_seconds": 1500})
    kept, compared = StudySnapshot.successor, 0

    def successor(known: StudySnapshot, trials: Any, results: Any) -> StudySnapshot:
        nonlocal compared
        compared += 1
        found = kept(known, trials, results)
        assert everything(found) == everything(StudySnapshot(wanted, 9, list(trials), dict(results)))
        return found

    with mock.patch.object(StudySnapshot, "successor", successor):
        run_killed(tmp_path, wanted, 3, 1, near_the_best, jitter=1.0, fails=lambda task: task.trial % 5 == 2)
        assert replay(tmp_path, wanted, 9, near_the_best) == []
    assert compared > 24, "each of 12 trials was compared when it was decided on and when it was replayed"


def test_a_thousand_pending_decisions_are_few_words_of_a_file_and_the_former_list_is_read(tmp_path):
    decisions = tuple(SchedulingDecision(number, FoldTask(0, number, 9), ()) for number in range(1200))
    pending = [*range(3), *range(100, 1100), 1150]
    write_trial(tmp_path, Trial(0, {}, (*decisions, SchedulingDecision(1200, FoldTask(0, 1200, 9), pending))))
    path = SearchPaths(tmp_path).trial(0)
    written = json.loads(path.read_text())
    assert written["decisions"][-1]["pending"] == "0-2 100-1099 1150"
    assert list(read_trial(tmp_path, 0).decisions[-1].pending) == pending
    written["decisions"][-1]["pending"] = pending
    path.write_text(json.dumps(written))
    assert list(read_trials(tmp_path)[0].decisions[-1].pending) == pending
    for wrong in ("5-1200", [-1], [10**20], "a-b", 7):
        written["decisions"][-1]["pending"] = wrong
        path.write_text(json.dumps(written))
        with pytest.raises(UserError, match=r"0000\.json is damaged"):
            read_trials(tmp_path)


def test_the_files_of_running_fold_tasks_are_looked_for_once_a_wait(tmp_path: Path) -> None:
    """With 20 workers that all start at once, 20 decisions need one look, not 20."""
    study, looks = Study(tmp_path, search(trials=20, parallel=20), 9, near_the_best, 20), []
    cluster, refresh = Cluster(tmp_path, 20), study.refresh

    def look() -> None:
        looks.append(len(study.decisions))
        refresh()

    with mock.patch.object(study, "refresh", look):
        assert run_study(study, cluster)
    assert looks == [0, *[20] * 20]


@pytest.mark.parametrize("size", [2, 3, 6, 9])
def test_the_median_of_the_other_trials(size: int) -> None:
    ranked = [float(number**2) for number in range(size)]
    for own in range(size):
        assert _median_without(ranked, own) == median(ranked[:own] + ranked[own + 1 :])
