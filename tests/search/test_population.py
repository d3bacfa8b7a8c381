"""Population-based training: its members are those of generations in turn, whatever order, workers, kills and failures."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.simulated_search import Cluster, draw, loss, run, run_killed, search, trial_files

from nnlo_lib.config import Experiment
from nnlo_lib.config.search import SearchConfig
from nnlo_lib.config.space import DimensionConfig
from nnlo_lib.search.population import perturbed
from nnlo_lib.search.samplers.base import sampling_rng
from nnlo_lib.search.space.space import SearchSpace
from nnlo_lib.search.space.validate import find_search_mistakes
from nnlo_lib.search.study.snapshot import StudySnapshot
from nnlo_lib.search.study.study import Study, replay
from nnlo_lib.search.study.trial import FoldTask, read_trials

EPOCHS, EVERY, POPULATION = 11, 3, 8
PBT = {"name": "pbt", "population": POPULATION, "every": EVERY, "quantile": 0.3, "resample": 0.2}
RUNGS = [3, 6, 9, 11]
SPACE = {
    "lr": {"log_uniform": [1e-4, 1.0]}, "decay": {"uniform": [0.0, 0.1]}, "size": {"integer": [1, 9]},
    "clip": {"choice": [1.0, 5.0, None]}, "fixed": {"constant": 3},
    "beta": {"uniform": [0.5, 0.9], "when": {"size": [1, 2, 3, 4]}},
}  # fmt: skip


def population(**settings: Any) -> SearchConfig:
    return search(**{"trials": None, "fidelity": PBT} | settings)


def unlucky(fold_task: FoldTask) -> bool:
    return (fold_task.trial, fold_task.epochs) in {(1, 3), (2, 3), (5, 3), (9, 6)}


def generations(wanted: SearchConfig, fails: set[tuple[int, int]]) -> list[list[dict[str, Any]]]:
    """Return the points of all members at each rung, by their places, from the pseudocode of Jaderberg et al. in turn.

    `fails`: (place, rung) of members without a value.
    """
    nothing = StudySnapshot(wanted, EPOCHS, (), {})
    members, found = [draw(number, nothing) for number in range(POPULATION)], []
    space, count = SearchSpace(wanted.space), int(0.3 * POPULATION)
    for rung in RUNGS:
        found.append(members)
        values = [
            math.inf if (place, rung) in fails else loss(point, rung, 0)
            for place, point in enumerate(members)
        ]
        best = sorted(range(POPULATION), key=lambda place: (values[place], place))
        after = list(members)
        for place in range(POPULATION):
            if place in best[-count:] or math.isinf(values[place]):
                random = sampling_rng(wanted.seed, "pbt", rung, place)
                donors = [each for each in best[:count] if math.isfinite(values[each])]
                donor = donors[random.integers(len(donors))]
                after[place] = perturbed(space, members[donor], random, (0.8, 1.25), 0.2)
        members = after
    return found


def members(folder: Path) -> list[list[dict[str, Any]]]:
    """Return the points of all members at each rung, by their places, from the files of a search."""
    trials, places = read_trials(folder), {}
    for trial in trials:
        places[trial.number] = places[trial.parent.replaces] if trial.parent else trial.number
    by_rung = [{places[each.number]: each.point for each in trials if rung in each.rungs} for rung in RUNGS]
    assert all(sorted(points) == list(range(POPULATION)) for points in by_rung)
    return [[points[place] for place in range(POPULATION)] for points in by_rung]


@pytest.mark.parametrize("order", ["fixed", "as_finished"])
@pytest.mark.parametrize("parallel", [1, 3, 8])
def test_members_are_those_of_generations_in_turn(order: str, parallel: int, tmp_path: Path) -> None:
    wanted = population(order=order, parallel=parallel)
    run(tmp_path, wanted, Cluster(tmp_path, parallel, jitter=1.5, seed=parallel), epochs=EPOCHS)
    assert members(tmp_path) == generations(wanted, set())
    trials = read_trials(tmp_path)
    assert len(trials) == POPULATION + 3 * int(0.3 * POPULATION)
    for trial in trials[POPULATION:]:
        assert trial.parent
        assert trial.parent.epochs in trials[trial.parent.trial].rungs
        assert max(trials[trial.parent.replaces].rungs) == trial.parent.epochs
    assert replay(tmp_path, wanted, EPOCHS, draw) == []


def test_failed_members_are_replaced_and_a_population_that_fails_ends(tmp_path: Path) -> None:
    wanted, some = population(), tmp_path / "some"
    run(
        some,
        wanted,
        Cluster(some, 3, fails=lambda task: (task.trial, task.epochs) in {(1, 3), (5, 3), (6, 3), (2, 6)}),
        epochs=EPOCHS,
    )
    assert members(some) == generations(wanted, {(1, 3), (5, 3), (6, 3), (2, 6)})
    run(tmp_path / "all", wanted, Cluster(tmp_path / "all", 3, fails=lambda task: True), epochs=EPOCHS)
    study = Study(tmp_path / "all", wanted, EPOCHS, draw, 3)
    assert len(study.decisions) == POPULATION
    assert study.has_ended


@pytest.mark.parametrize("folds", [{}, {"k": 2}, {"k": 2, "in_turn": True}])
def test_a_search_killed_20_times_ends_with_the_trials_of_the_undisturbed_one(
    folds: Any, tmp_path: Path
) -> None:
    wanted = population(order="fixed", folds=folds)
    calm, wild = tmp_path / "calm", tmp_path / "wild"
    run(calm, wanted, Cluster(calm, 3, fails=unlucky), epochs=EPOCHS)
    assert run_killed(wild, wanted, 20, 1, draw, EPOCHS, jitter=1.0, fails=unlucky) == 20
    assert trial_files(wild) == trial_files(calm)
    assert replay(wild, wanted, EPOCHS, draw) == []


def test_another_parent_shows_in_the_replay(tmp_path: Path) -> None:
    wanted = population()
    run(tmp_path, wanted, epochs=EPOCHS)
    path = tmp_path / f"trials/{POPULATION:04d}.json"
    trial = json.loads(path.read_text())
    parent = trial["parent"]["trial"]
    trial["parent"]["trial"] = 0 if parent else 1
    path.write_text(json.dumps(trial))
    found = replay(tmp_path, wanted, EPOCHS, draw)
    assert f"from epoch 3 of trial {0 if parent else 1} up to epoch 6, but the replay gives" in found[0]
    assert f"from epoch 3 of trial {parent} up to epoch 6" in found[0]


def test_changed_points_stay_in_the_space() -> None:
    space = SearchSpace({key: DimensionConfig.model_validate(each) for key, each in SPACE.items()})
    random = np.random.default_rng(0)
    drawn = 0
    for number in range(400):
        point = space.sample(random)
        changed = perturbed(space, point, np.random.default_rng(number), (0.5, 2.0), 0.0)
        assert changed in space
        assert all(type(changed[key]) is type(point[key]) for key in ("lr", "decay", "size"))
        assert json.loads(json.dumps(changed)) == changed
        for key in ("lr", "decay"):
            low, high = SPACE[key].get("log_uniform") or SPACE[key]["uniform"]
            assert changed[key] in (max(low, point[key] * 0.5), min(high, point[key] * 2.0))
        assert changed["size"] != point["size"] or point["size"] in (1, 9)
        clips = SPACE["clip"]["choice"]
        assert abs(clips.index(changed["clip"]) - clips.index(point["clip"])) <= 1
        assert ("beta" in changed) == (changed["size"] <= 4)
        # Drawn again: nothing of the point is left, and no key changes the numbers of another one.
        again = perturbed(space, point, np.random.default_rng(number), (0.5, 2.0), 1.0)
        assert again == perturbed(space, space.sample(random), np.random.default_rng(number), (0.5, 2.0), 1.0)
        drawn += again["lr"] != changed["lr"]
    assert drawn > 390


MISTAKES = [
    ({}, {"train.batch_size": {"integer": [8, 32]}}, "search.space.train.batch_size: cannot be searched: pbt changes keys of a running"),
    ({}, {"model.args.hidden": {"integer": [4, 8]}}, "search.space.model.args.hidden: cannot be searched"),
    ({}, {"train.optimizer.name": ["sgd", "adam", "lars", "lamb"]}, "search.space.train.optimizer.name: cannot be searched"),
    ({"train": {"epochs": 9, "optimizer": {"name": "rmsprop"}}}, {"train.optimizer.momentum": {"uniform": [0.0, 0.9]}}, "search.space.train.optimizer.momentum: cannot"),
    ({}, {"train.clip_norm": [1.0, 2.0]}, "search.fidelity.population: the space has only 2 points; set 2 or less"),
    ({"train": {"epochs": 9, "target": {"metric": "val_accuracy", "value": 0.9}}}, {}, "train.target: copies of a training that ended early"),
    ({"train": {"epochs": 1}}, {}, "search.fidelity.every: pbt needs a rung below train.epochs"),
]  # fmt: skip


@pytest.mark.parametrize(("base", "space", "words"), MISTAKES)
def test_what_a_running_training_cannot_change_is_refused(base: Any, space: Any, words: str) -> None:
    ranges = space or {"train.optimizer.lr": {"log_uniform": [1e-3, 1e-1]}}
    wanted = {"space": ranges, "fidelity": {"name": "pbt", "population": 4}}
    experiment = Experiment.model_validate({"train": {"epochs": 9}} | base | {"search": wanted})
    found = [f"{'.'.join(at)}: {what}" for at, what in find_search_mistakes(experiment, lambda settings: [])]
    assert len(found) == 1
    assert found[0].startswith(words)
    constant = {key: [value] for key, value in {"train.batch_size": 16, "model.args.hidden": 8}.items()}
    fine = {"model.args.dropout": {"uniform": [0, 0.5]}, "train.schedule.factor": {"uniform": [0.1, 0.9]}}
    wanted["space"] = constant | fine
    allowed = Experiment.model_validate({"train": {"epochs": 9}, "search": wanted})
    assert list(find_search_mistakes(allowed, lambda settings: [])) == []


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"trials": 9}, "set `search.fidelity.population`"),
        ({"folds": {"k": 3, "in_turn": True, "prune": 0.1}}, "compares trials with all their folds"),
    ],
)
def test_settings_that_contradict_a_population_are_refused(settings: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        population(**settings)
