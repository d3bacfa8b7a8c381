"""Whole searches under a virtual clock are replayable, survive kills, can be extended, and train nothing twice."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from helpers.simulated_search import (
    Cluster,
    draw,
    near_the_best,
    run,
    run_killed,
    search,
    trial_files,
    utilisation,
)

from nnlo_lib.config import Experiment
from nnlo_lib.config.search import SearchConfig
from nnlo_lib.core.errors import UserError
from nnlo_lib.search.samplers.base import build_sampler
from nnlo_lib.search.space.space import count_trials
from nnlo_lib.search.space.validate import unfinished_grid
from nnlo_lib.search.study.snapshot import StudySnapshot
from nnlo_lib.search.study.study import Study, replay
from nnlo_lib.search.study.trial import (
    FoldTask,
    Result,
    SchedulingDecision,
    Trial,
    decisions_in_order,
    read_result,
    read_trials,
    write_trial,
)

FIDELITIES = [
    {"name": "full"},
    {"name": "asha", "first": 1, "factor": 2},
    {"name": "hyperband", "first": 1, "factor": 2},
    {"name": "median", "grace": 1, "every": 2, "trials": 3},
]
FOLDS = [{}, {"k": 2}, {"k": 3, "in_turn": True, "prune": 0.3}]
# Each fidelity and each kind of folds once; the other combinations are exhaustive.
DAILY = [(0, 0), (1, 1), (2, 2), (3, 1), (1, 2)]
every_kind = pytest.mark.parametrize(
    ("fidelity", "folds"),
    [
        pytest.param(
            FIDELITIES[i], FOLDS[j], id=f"{FIDELITIES[i]['name']}-{'-'.join(FOLDS[j]) or 'no folds'}",
            marks=[] if (i, j) in DAILY else pytest.mark.exhaustive,
        )
        for i in range(4) for j in range(3)
    ],
)  # fmt: skip


def unlucky(fold_task: FoldTask) -> bool:
    return fold_task.trial % 5 == 2 and fold_task.epochs > 1 and fold_task.fold == 0


@every_kind
def test_order_fixed_makes_equal_searches_whatever_the_durations(
    fidelity: Any, folds: Any, tmp_path: Path
) -> None:
    wanted = search(order="fixed", fidelity=fidelity, folds=folds)
    for seed in range(3):
        folder = tmp_path / str(seed)
        run(folder, wanted, Cluster(folder, 3, jitter=seed, seed=seed, fails=unlucky), near_the_best)
        assert Study(folder, wanted, 9, near_the_best, 1).decide() is None, "nothing is left to do"
    assert trial_files(tmp_path / "0") == trial_files(tmp_path / "1") == trial_files(tmp_path / "2")


@every_kind
def test_a_search_killed_20_times_ends_with_the_trials_of_the_undisturbed_one(
    fidelity: Any, folds: Any, tmp_path: Path
) -> None:
    wanted = search(order="fixed", fidelity=fidelity, folds=folds)
    calm, wild = tmp_path / "calm", tmp_path / "wild"
    run(calm, wanted, Cluster(calm, 3, fails=unlucky), near_the_best)
    killed = run_killed(
        wild, wanted, 20, hash_free(fidelity, folds), near_the_best, jitter=1.0, fails=unlucky
    )
    assert killed == 20
    assert trial_files(wild) == trial_files(calm)


@every_kind
def test_every_decision_as_finished_follows_from_its_file(fidelity: Any, folds: Any, tmp_path: Path) -> None:
    wanted = search(fidelity=fidelity, folds=folds)
    run_killed(tmp_path, wanted, 20, hash_free(fidelity, folds), near_the_best, jitter=1.0, fails=unlucky)
    assert replay(tmp_path, wanted, 9, near_the_best) == []
    fold_tasks = [decision.task for decision in decisions_in_order(read_trials(tmp_path))]
    assert len(fold_tasks) == len(set(fold_tasks)), "a fold task was decided on twice"
    assert all(read_result(tmp_path, fold_task) for fold_task in fold_tasks)
    assert len(trial_files(tmp_path)) == 12


@pytest.mark.parametrize("order", ["fixed", "as_finished"])
def test_the_model_too_is_replayed(order: str, tmp_path: Path) -> None:
    method = {"name": "auto", "initial": 4}
    wanted = search(order=order, fidelity=FIDELITIES[1], method=method, folds={"k": 2})
    assert run_killed(tmp_path, wanted, 10, 1, build_sampler(wanted), jitter=1.0) == 10
    assert replay(tmp_path, wanted, 9, build_sampler(wanted)) == []
    points = [json.dumps(trial.point, sort_keys=True) for trial in read_trials(tmp_path)]
    assert len(set(points)) == 12


def test_more_trials_continue_a_search(tmp_path: Path) -> None:
    first = run(tmp_path, search(trials=6, folds={"k": 2}))
    then = run(tmp_path, search(trials=12, folds={"k": 2}), Cluster(tmp_path, 3, now=first.now))
    assert {fold_task.trial for fold_task in first.started} == set(range(6))
    assert sorted(then.started) == [FoldTask(trial, fold, 9) for trial in range(6, 12) for fold in range(2)]
    assert max(then.started.values()) == 1
    assert not run(tmp_path, search(trials=12, folds={"k": 2})).started, "a finished search does nothing"


def test_a_search_goes_on_with_fewer_workers(tmp_path: Path) -> None:
    wide = search(parallel=6)
    study = Study(tmp_path, wide, 9, draw, 6)
    while study.decide():
        pass
    assert len(study.unfinished) == 6
    cluster = run(tmp_path, search(parallel=2))
    assert sorted(cluster.started) == [FoldTask(trial, 0, 9) for trial in range(12)]


@pytest.mark.parametrize("fidelity", [FIDELITIES[1], FIDELITIES[3]], ids=lambda each: each["name"])
def test_workers_hardly_ever_wait(fidelity: Any, tmp_path: Path) -> None:
    wanted = search(trials=150, parallel=4, fidelity=fidelity)
    cluster = Cluster(tmp_path, 4, jitter=0.7)
    run(tmp_path, wanted, cluster)
    assert utilisation(tmp_path, 4) >= 0.95


def test_a_search_ends_if_no_point_is_left(tmp_path: Path) -> None:
    def few(number: int, known: Any) -> Any:
        return draw(number, known) if number < 4 else None

    for order in ("fixed", "as_finished"):
        run(tmp_path / order, search(order=order), propose=few)
        assert len(trial_files(tmp_path / order)) == 4


def test_a_point_edited_by_hand_shows_in_the_replay(tmp_path: Path) -> None:
    run(tmp_path, search())
    path = tmp_path / "trials/0005.json"
    path.write_text(path.read_text().replace('"train.batch_size": ', '"train.batch_size": 1'))
    (difference,) = replay(tmp_path, search(), 9, draw)
    assert difference.startswith("decision 5 is fold 0 of trial 5")


def cut(text: str) -> str:
    return text[: len(text) // 2]


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("0003.json", cut),
        ("0003.json", lambda text: ""),
        ("0003.json", lambda text: json.dumps(json.loads(text) | {"decisions": []})),
        ("", lambda text: text.replace('"decision": 3', '"decision": 4')),
        ("0003/fold-0/epochs-9.json", cut),
    ],
)
def test_a_damaged_file_is_named(name: str, change: Callable[[str], str], tmp_path: Path) -> None:
    run(tmp_path, search(parallel=1))
    path = tmp_path / "trials" / (name or "0003.json")
    path.write_text(change(path.read_text()))
    for read in (lambda: replay(tmp_path, search(), 9, draw), lambda: Study(tmp_path, search(), 9, draw, 1)):
        with pytest.raises(UserError, match=f"trials/{name}.* is damaged.*delete"):
            read()


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    run(tmp_path, search())
    (tmp_path / "trials/0003/fold-0/epochs-9.json").unlink()
    with pytest.raises(UserError, match=r"trials/0003/fold-0/epochs-9.json is missing"):
        replay(tmp_path, search(), 9, draw)
    (tmp_path / "trials/0003.json").unlink()
    with pytest.raises(UserError, match=r"trials/0003.json is damaged"):
        Study(tmp_path, search(), 9, draw, 1)


def test_only_more_trials_and_deleted_results_continue_a_search_that_has_ended(tmp_path: Path) -> None:
    def has_ended(**changes: Any) -> bool:
        wanted = search(**{"trials": 4, "order": "fixed"} | changes)
        return Study(tmp_path, wanted, 9, near_the_best, wanted.parallel).has_ended

    run(tmp_path, search(trials=4, order="fixed"), propose=near_the_best)
    assert all(has_ended(**changes) for changes in ({}, {"trials": 2}, {"parallel": 9}, {"parallel": 1}))
    assert not has_ended(trials=5)
    FoldTask(3, 0, 9).result_path(tmp_path).unlink()
    assert not has_ended()


def test_a_new_trial_adopts_the_result_of_the_same_point_only(tmp_path: Path) -> None:
    """The file of the trial was deleted, and its result was not."""
    run(tmp_path, search(trials=4))
    path, task = tmp_path / "trials/0003.json", FoldTask(3, 0, 9)
    point = json.loads(path.read_text())["point"]
    for recorded in (None, {"train.optimizer.lr": 0.7, "train.batch_size": 16}):
        replace(read_result(tmp_path, task), point=recorded).write(tmp_path)
        path.unlink(missing_ok=True)
        message = r"epochs-9.json: the result of an earlier trial 3 with another point"
        with pytest.raises(UserError, match=message):
            Study(tmp_path, search(trials=4), 9, draw, 3).decide()
    replace(read_result(tmp_path, task), point=point).write(tmp_path)
    assert not run(tmp_path, search(trials=4)).started
    assert json.loads(path.read_text())["point"] == point


def hash_free(*what: Any) -> int:
    """Return a number that is the same in every process, unlike `hash`."""
    return sum(json.dumps(what).encode())


def give_results(study: Study, folder: Path, count: int = 99) -> None:
    """Decide on fold tasks and give each a result, until none is left."""
    for _ in range(count):
        if not (decision := study.decide()):
            break
        Result(decision.task, "finished", ({"epoch": 1, "val_loss": 1.0, "seconds": 1.0},) * 9).write(folder)
        study.refresh()


SQUARE = {"train.optimizer.lr": {"uniform": [0, 1]}, "train.batch_size": {"integer": [1, 5]}}


def test_a_grid_is_tried_whole_by_default(tmp_path: Path) -> None:
    """The grid has 25 points, more than the 20 trials of other methods."""
    grid = {"space": SQUARE, "method": {"name": "grid"}}
    whole, cut = (SearchConfig.model_validate(grid | more) for more in ({}, {"trials": 7}))
    for name, wanted in {"whole": whole, "cut": cut}.items():
        give_results(Study(tmp_path / name, wanted, 9, build_sampler(wanted), 1), tmp_path / name)
    tried = [tuple(trial.point.values()) for trial in read_trials(tmp_path / "whole")]
    assert tried == [(x / 4, size) for x in range(5) for size in range(1, 6)]
    assert len(read_trials(tmp_path / "cut")) == 7
    assert unfinished_grid(whole, 25) == ""
    assert unfinished_grid(cut, 7).startswith("7 of 25 points are tried (search.trials: 7)")


@pytest.mark.parametrize(("name", "trials"), [("random", 20), ("auto", 20), ("genetic", 20), ("grid", 25)])
def test_default_number_of_trials(name: str, trials: int) -> None:
    assert count_trials(SearchConfig.model_validate({"space": SQUARE, "method": {"name": name}})) == trials


OWN = {"train.optimizer.lr": 0.02, "train.batch_size": 64}


@pytest.fixture
def own() -> tuple[Experiment, SearchConfig, Any]:
    """Return an experiment whose own settings are OWN, its search, and its sampler."""
    train = {"epochs": 9, "batch_size": 64, "optimizer": {"name": "sgd", "lr": 0.02}}
    settings = search(method={"name": "random"})
    return Experiment(train=train, search=settings), settings, build_sampler(settings)


def test_the_experiments_own_settings_are_the_first_trial(own: Any, tmp_path: Path) -> None:
    experiment, settings, sampler = own
    give_results(Study.of(tmp_path, experiment), tmp_path, 3)
    points = [trial.point for trial in read_trials(tmp_path)]
    assert points[0] == OWN
    assert OWN not in points[1:]
    assert replay(tmp_path, settings, 9, sampler, [OWN]) == []
    assert len(replay(tmp_path, settings, 9, sampler)) == 1


def test_a_search_that_began_with_another_trial_continues_as_it_began(own: Any, tmp_path: Path) -> None:
    experiment, settings, sampler = own
    # The random sampler's points do not depend on results.
    expected = [sampler(number, StudySnapshot(settings, 9, (), {})) for number in range(3)]
    write_trial(tmp_path, Trial(0, expected[0], (SchedulingDecision(0, FoldTask(0, 0, 9), ()),)))
    Result(FoldTask(0, 0, 9), "finished", ({"val_loss": 1.0},) * 9).write(tmp_path)
    give_results(Study.of(tmp_path, experiment), tmp_path, 2)
    assert [trial.point for trial in read_trials(tmp_path)] == expected
    assert replay(tmp_path, settings, 9, sampler, [OWN]) == []
