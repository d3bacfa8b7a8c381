"""Searches with several objectives: front, choice, one value for samplers, promotions, replay, files and refusals."""

import csv
import math
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.simulated_search import made_up, run, run_killed, search, trial_files
from pydantic import ValidationError

from nnlo_lib.config import Experiment
from nnlo_lib.config.search import ObjectiveConfig, SearchConfig
from nnlo_lib.core.errors import UserError
from nnlo_lib.experiment.load import experiment_from_settings
from nnlo_lib.search.best import write_outcome
from nnlo_lib.search.pareto import count_dominating, knee, pareto_front, weighted_values
from nnlo_lib.search.pruners import build_pruner
from nnlo_lib.search.samplers.base import build_sampler, observe
from nnlo_lib.search.space.space import SearchSpace
from nnlo_lib.search.study.snapshot import OtherValue, StudySnapshot
from nnlo_lib.search.study.study import replay
from nnlo_lib.search.study.trial import FoldTask, Result, SchedulingDecision, Trial, write_trial
from nnlo_lib.search.study.trial_summary import summarize_trial

LOSS_AND_SIZE = [{"metric": "val_loss"}, {"metric": "parameters"}]
GENETIC = {"name": "genetic", "population": 4}
LOSS_AND_TIME = [{"metric": "val_loss"}, {"metric": "seconds"}]


class Weights:
    """Stands in for a generator: the weights are given."""

    def __init__(self, *weights: float) -> None:
        self.weights = np.array(weights)

    def dirichlet(self, _: Any) -> Any:
        return self.weights


def vectors(seed: int, objectives: int, trials: int = 60) -> dict[int, tuple[float, ...]]:
    """Return vectors of small whole numbers, many of which are equal in an objective or in all."""
    drawn = np.random.default_rng(seed).integers(0, 8, (trials, objectives))
    return {3 * trial: tuple(map(float, row)) for trial, row in enumerate(drawn)}


def known(values: dict[int, tuple[float, ...]], objective: Any = LOSS_AND_SIZE, **more: Any) -> StudySnapshot:
    """Return a study in which each trial has these losses and numbers of parameters; infinite: failed."""
    wanted = search(objective=objective, **more)
    snapshot = made_up(wanted, {(trial, 9): [loss] for trial, (loss, _) in values.items()})
    for task, result in snapshot.results.items():
        for row in result.rows:
            row["parameters"] = values[task.trial][1]
    return snapshot


@pytest.mark.parametrize(("seed", "objectives"), [*product(range(3), (2, 3))])
def test_the_front_is_what_every_pair_of_trials_and_numpy_say(seed: int, objectives: int) -> None:
    given = vectors(seed, objectives)
    dominated = {
        one: sum(
            all(a <= b for a, b in zip(other, values, strict=True))
            and any(a < b for a, b in zip(other, values, strict=True))
            for other in given.values()
        )
        for one, values in given.items()
    }
    table = np.array(list(given.values()))
    better = (table[:, None] <= table).all(axis=2) & (table[:, None] < table).any(axis=2)
    free = np.array(list(given))[~better.any(axis=0)]
    front = pareto_front(given)
    assert sorted(front) == [trial for trial, count in dominated.items() if not count] == free.tolist()
    assert [given[trial] for trial in front] == sorted(given[trial] for trial in front)
    assert count_dominating(given) == dominated


def test_the_one_value_is_the_augmented_chebyshev_function_of_the_ranks() -> None:
    given = {4: (0.1, 1e6), 5: (0.3, 10.0), 9: (0.2, 10.0)}
    # Ranks in [0, 1]: (0, 1), (1, 0.25), (0.5, 0.25). Maximum of the weighted ranks, plus 0.05 times their sum.
    expected = {4: 0.75 + 0.05 * 0.75, 5: 0.25 + 0.05 * 0.4375, 9: 0.1875 + 0.05 * 0.3125}
    assert weighted_values(given, Weights(0.25, 0.75)) == pytest.approx(expected)
    assert weighted_values({1: (0.5, 7.0)}, Weights(0.25, 0.75)) == {1: 0.0}


@pytest.mark.parametrize("objectives", [2, 3])
def test_for_each_trial_of_the_front_some_weights_prefer_it_and_for_no_other_trial(objectives: int) -> None:
    given, random = vectors(1, objectives, 8), np.random.default_rng(0)
    preferred = set()
    for _ in range(500):
        one = weighted_values(given, random)
        preferred |= {trial for trial, value in one.items() if value <= min(one.values()) + 1e-12}
    assert preferred == set(pareto_front(given))


def test_the_knee_is_nearest_to_the_ideal_point_on_the_scale_of_the_front() -> None:
    assert knee({7: (0.0, 1000.0), 2: (0.3, 200.0), 5: (1.0, 0.0)}) == 2
    assert knee({7: (0.5, 3.0)}) == knee({7: (0.5, 3.0), 8: (0.5, 3.0)}) == 7


VALUES = {0: (0.3, 10.0), 1: (0.2, 90.0), 2: (0.2, 40.0), 3: (math.inf, 1.0), 4: (0.6, 10.0), 5: (0.1, 990.0)}


def test_front_and_choice_of_a_study() -> None:
    """A failed trial and one with the best loss but more parameters than its equal are not on the front."""
    study = known(VALUES)
    assert list(study.front) == [5, 2, 0]
    assert study.best_trial() == 5
    assert known(VALUES, choose="knee").best_trial() == 2
    rest = {trial: values for trial, values in VALUES.items() if trial < 5}
    assert known(rest).best_trial() == 2, "trial 1 has the same loss and more parameters"
    assert known(rest, LOSS_AND_SIZE[:1]).best_trial() == 1, "one objective: the earlier of equal trials"
    assert [summarize_trial(study, trial).others for trial in (1, 3)] == [(90.0,), ()]
    assert [summarize_trial(study, trial).on_front for trial in range(6)] == [
        True,
        False,
        True,
        False,
        False,
        True,
    ]


@pytest.mark.parametrize(
    ("first", "losses", "value"),
    [
        ({}, [0.5, 0.2, 0.4], -0.2),
        ({"epoch": "last"}, [0.5, 0.2, 0.4], -0.3),
        ({}, [0.5, math.nan, 0.4], -0.3),
        ({}, [0.1, 0.2, 0.4], math.inf),  # the other metric of epoch 1 is not finite
        ({}, [math.nan], math.inf),
    ],
)
def test_a_further_objective_counts_at_the_epoch_of_the_first(first: Any, losses: Any, value: float) -> None:
    objective = ObjectiveConfig(**first, others=({"metric": "val_accuracy"},))
    rows = [{"val_loss": loss, "val_accuracy": 0.1 * e} for e, loss in enumerate(losses, 1)]
    rows[0]["val_accuracy"] = math.nan
    found = OtherValue(0)(objective, Result(FoldTask(0, 0, 3), "finished", tuple(rows)))
    assert found == pytest.approx(value)


def test_samplers_see_one_value_with_other_weights_for_each_proposal() -> None:
    only = {"train.optimizer.lr": {"log_uniform": [1e-4, 1.0]}}
    study = known(VALUES, space=only)
    space = SearchSpace(study.search.space)
    one = {point["train.optimizer.lr"]: value for point, value in observe(space, study).evaluated}
    values = [one[trial.point["train.optimizer.lr"]] for trial in study.trials]
    assert values[3] == max(values), "the failed trial"
    assert min(values) == min(values[each] for each in study.front)
    assert observe(space, study) == observe(space, known(VALUES, space=only))
    assert (
        observe(space, known({**VALUES, 6: (9.0, 1e9)}, space=only)).evaluated[:6]
        != observe(space, study).evaluated
    )


def test_asha_promotes_the_trials_that_the_fewest_dominate() -> None:
    fidelity = {"name": "asha", "first": 1, "factor": 3}
    values = {0: (0.1, 900.0), 1: (0.4, 5.0), 2: (0.2, 950.0), 3: (0.5, 6.0), 4: (0.3, 970.0), 5: (0.6, 7.0)}
    study = made_up(
        search(objective=LOSS_AND_SIZE, fidelity=fidelity), {(trial, 1): [loss] for trial, (loss, _) in values.items()}
    )  # fmt: skip
    for task, result in study.results.items():
        result.rows[0]["parameters"] = values[task.trial][1]
    promote = build_pruner(study.search.fidelity).promote
    assert promote(study) == (0, 3)
    second = made_up(
        study.search, {(0, 1): [0.1], (0, 3): [None], **{(t, 1): [v[0]] for t, v in values.items() if t}}
    )
    for task, result in second.results.items():
        result.rows[0]["parameters"] = values[task.trial][1]
    assert promote(second) == (1, 3), "by the loss alone, it would be trial 2"


@pytest.mark.parametrize("fidelity", [{"name": "full"}, {"name": "asha", "first": 1, "factor": 2}])
def test_a_killed_search_with_two_objectives_replays(fidelity: Any, tmp_path: Path) -> None:
    """With measured seconds, each decision follows from the recorded results."""
    wanted = search(objective=LOSS_AND_TIME, method=GENETIC, fidelity=fidelity, folds={"k": 2})
    assert run_killed(tmp_path, wanted, 10, 1, build_sampler(wanted), jitter=1.0) == 10
    assert replay(tmp_path, wanted, 9, build_sampler(wanted)) == []
    other = wanted.model_copy(update={"seed": 1})
    assert replay(tmp_path, other, 9, build_sampler(other)), "the proposals depend on the seed"


def test_order_fixed_repeats_a_search_with_two_objectives(tmp_path: Path) -> None:
    calm, wild, one = (tmp_path / each for each in ("calm", "wild", "one"))
    wanted = search(objective=LOSS_AND_SIZE, order="fixed", method=GENETIC)
    run(calm, wanted, propose=build_sampler(wanted))
    assert run_killed(wild, wanted, 10, 2, build_sampler(wanted), jitter=1.0) == 10
    assert trial_files(wild) == trial_files(calm)
    single = search(order="fixed", method=GENETIC)
    run(one, single, propose=build_sampler(single))
    assert trial_files(one) != trial_files(calm)


def test_the_table_and_the_file_of_the_best_name_the_front(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "results/t/search"
    folder.mkdir(parents=True)
    settings: dict[str, Any] = {
        "space": {"train.optimizer.lr": {"uniform": [0, 1]}},
        "objective": LOSS_AND_SIZE,
    }
    experiment = Experiment.model_validate({"name": "t", "search": settings | {"choose": "knee"}})
    (folder / "config.json").write_text(experiment.model_dump_json(exclude=experiment.problem_default_keys))
    for trial, (loss, size) in VALUES.items():
        task = FoldTask(trial, 0, experiment.train.epochs)
        write_trial(
            folder,
            Trial(trial, {"train.optimizer.lr": 0.1 + trial / 10}, (SchedulingDecision(trial, task, ()),)),
        )
        row = {"epoch": 1.0, "seconds": 1.0, "val_loss": loss, "parameters": size}
        Result(task, "finished" if math.isfinite(loss) else "failed", (row,)).write(folder)
    write_outcome(folder)
    with (folder / "trials.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["front"] for row in rows] == ["yes", "", "yes", "", "", "yes"]
    assert [row["objective_parameters"] for row in rows] == ["10.0", "90.0", "40.0", "", "10.0", "990.0"]
    best = (folder / "best.yaml").read_text()
    assert "val_loss 0.2, parameters 40" in best
    assert (
        "3 trials on the Pareto front of val_loss, parameters (column front of trials.csv): nearest to"
        in best
    )
    assert "lr: 0.3" in best


REFUSED = {
    "seconds in a fixed order": ({"objective": LOSS_AND_TIME, "order": "fixed"}, "order", "measured seconds"),
    "a test of folds": (
        {"objective": LOSS_AND_SIZE, "folds": {"k": 3, "in_turn": True, "prune": 0.1}}, "folds.prune", "a single",
    ),
    "median": ({"objective": LOSS_AND_SIZE, "fidelity": {"name": "median"}}, "fidelity.name", "asha, hyperband"),
    "a knee of one": ({"choose": "knee"}, "choose", "requires several objectives"),
    "twice": ({"objective": [LOSS_AND_SIZE[0]] * 2}, "objective.others", "a metric occurs twice"),
    "size first": ({"objective": LOSS_AND_SIZE[::-1]}, "objective.epoch", "the first epoch has the best parameters"),
    "nothing": ({"objective": []}, "objective", "section of keys"),
    "a target of another": (
        {"objective": [LOSS_AND_SIZE[0], {"metric": "parameters", "target": 5}]},
        "objective.others.0.target", "unknown key",
    ),
    "another that is not measured": (
        {"objective": [LOSS_AND_SIZE[0], {"metric": "val_auc"}]}, "objective.others.0.metric", "'val_auc' is not measured",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_refusals(case: str) -> None:
    settings, key, words = REFUSED[case]
    space = {"train.optimizer.lr": {"log_uniform": [1e-4, 1]}}
    with pytest.raises(UserError, match=rf"search\.{key}: .*{words}"):
        experiment_from_settings({"search": {"space": space, **settings}})


def test_a_list_of_one_is_one_objective_and_settings_are_read_back() -> None:
    assert search(objective=[{"metric": "val_accuracy"}]) == search(objective={"metric": "val_accuracy"})
    wanted = search(
        objective=[{"metric": "val_accuracy", "epoch": "last"}, {"metric": "seconds"}], choose="knee"
    )
    assert SearchConfig.model_validate_json(wanted.model_dump_json()) == wanted
    assert [each.sign for each in wanted.objectives] == [-1, 1]
    with pytest.raises(ValidationError):
        search(objective=["val_accuracy"])
