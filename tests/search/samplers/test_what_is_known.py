"""`search.start` and `search.known`: first points, and results of another search, as pure functions with oracles."""

import csv
import logging
import math
from pathlib import Path
from typing import Any

import pytest
from helpers.simulated_search import SPACE, made_up, run_killed, search, trial_files
from helpers.synthetic_search import MadeUp
from helpers.trial_results import write_result

from nnlo_lib.config import Experiment
from nnlo_lib.core.errors import UserError
from nnlo_lib.search.best import read_known, write_table
from nnlo_lib.search.samplers.base import build_sampler, observe
from nnlo_lib.search.space.space import SearchSpace, base_point, first_points
from nnlo_lib.search.study.storage import freeze_or_verify_settings, load_study
from nnlo_lib.search.study.study import Study, replay

LR, SIZE = "train.optimizer.lr", "train.batch_size"


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a table of twelve trials of SPACE, of which one failed; the value of a trial is (log10 lr + 2)^2 and more."""
    monkeypatch.chdir(tmp_path)
    made = MadeUp(tmp_path, space=SPACE)
    for number in range(11):
        made.trial({LR: 10 ** (-3.5 + 0.3 * number), SIZE: [16, 32, 64][number % 3]})
    made.trial({LR: 0.5, SIZE: 16}, status="failed", error="ValueError: no")
    write_table(tmp_path / "known.csv", load_study(made.folder))
    return tmp_path / "known.csv"


def test_a_table_gives_the_points_and_values_of_the_finished_trials(table: Path) -> None:
    rows = load_study(table.parent / "results/made/search").trial_summaries
    expected = [(row.point, row.objective) for row in rows if row.state == "finished"]
    assert len(expected) == 11
    assert read_known(search(known=str(table))) == expected
    larger = read_known(search(known=str(table), objective={"metric": "val_accuracy"}))
    assert larger == [(point, -value) for point, value in expected]


def test_every_kind_of_value_is_read_as_it_was_written(table: Path) -> None:
    space = {"a.flag": [True, False], "a.none": [None, 1], "a.list": [[1, 2], "x"], "a.real": {"uniform": [0, 1]},
             "a.inner": {"integer": [1, 9], "when": {"a.flag": True}}}  # fmt: skip
    points = [
        {"a.flag": True, "a.none": None, "a.list": [1, 2], "a.real": 1e-07, "a.inner": 7},
        {"a.flag": False, "a.none": 1, "a.list": "x", "a.real": 1.0},
    ]
    other = MadeUp(table.parent / "other", space=space)
    for point in points:
        other.trial(point)
    write_table(table, load_study(other.folder))
    assert [point for point, _ in read_known(search(space=space, known=str(table)))] == points


def test_rows_outside_of_the_space_are_counted_in_one_sentence(
    table: Path, caplog: pytest.LogCaptureFixture
) -> None:
    narrow = {LR: {"log_uniform": [1e-3, 1e-1]}, SIZE: [16, 32]}
    with table.open() as file:
        inside = [row for row in csv.DictReader(file) if 1e-3 <= float(row[LR]) <= 1e-1 and row[SIZE] != "64"]
    with caplog.at_level(logging.WARNING):
        assert len(read_known(search(space=narrow, known=str(table)))) == len(inside) > 2
    assert [each.message.split(":")[1].split(" of ")[0] for each in caplog.records] == [
        f" {12 - len(inside)} rows"
    ]


@pytest.mark.parametrize(
    ("space", "content", "words"),
    [
        (SPACE, None, "known.csv cannot be read as a trials.csv of a search: .*No such file"),
        (SPACE, "a,b\n1,2\n", "known.csv cannot be read as a trials.csv of a search"),
        (
            {LR: {"log_uniform": [2, 3]}, SIZE: [16]},
            "",
            "all 12 rows of known.csv are not finished, or with keys",
        ),
        ({LR: {"log_uniform": [1e-4, 1]}}, "", "all 12 rows of known.csv are not finished, or with keys"),
    ],
    ids=["missing", "another table", "other values", "other keys"],
)
def test_a_table_without_a_usable_row_is_refused(table: Path, space: Any, content: Any, words: str) -> None:
    if content is None:
        table.unlink()
    elif content:
        table.write_text(content)
    with pytest.raises(UserError, match=words):
        read_known(search(space=space, known="known.csv"))


def test_known_results_count_like_trials_that_are_trained_to_the_end() -> None:
    wanted, earlier = (
        search(fidelity={"name": "asha", "first": 3}),
        [({LR: 0.1, SIZE: 16}, 9.0), ({LR: 0.2, SIZE: 32}, 1.0)],
    )
    known = made_up(wanted, {(0, 3): [0.5], (1, 3): [0.4], (0, 9): [0.3], (2, 3): [math.inf]})
    points = [{LR: 0.01 / (1 + trial), SIZE: 16} for trial in range(3)]
    for trial, point in zip(known.trials, points, strict=True):
        trial.point.update(point)
    space = SearchSpace(wanted.space)
    # Four values are enough: two at rung 3 beside one at rung 9 are not, with the two known ones rung 9 has three.
    assert observe(space, known, earlier).evaluated == [*earlier, (points[0], 0.3), (points[2], 9.0)]
    assert observe(space, known).evaluated == [(points[0], 0.5), (points[1], 0.4), (points[2], 0.5)]
    assert len(observe(space, known, earlier).tried_keys) == 3, "a known point may be tried"


@pytest.mark.parametrize("method", [{"name": "auto", "initial": 4}, {"name": "genetic", "population": 4}])
def test_a_killed_search_with_known_results_replays(table: Path, method: Any, tmp_path: Path) -> None:
    wanted = search(known=str(table), method=method, trials=6)
    folder, calm = tmp_path / "killed", tmp_path / "calm"
    assert run_killed(folder, wanted, 4, 1, build_sampler(wanted)) == 4
    assert run_killed(calm, wanted, 0, 1, build_sampler(wanted)) == 0
    assert len(trial_files(folder)) == len(trial_files(calm)) == 6
    assert replay(folder, wanted, 9, build_sampler(wanted)) == []
    without = wanted.model_copy(update={"known": None})
    assert replay(folder, without, 9, build_sampler(without)), "the known results change no proposal"


def experiment(**settings: Any) -> Experiment:
    return Experiment.model_validate({"name": "x", "search": {"space": SPACE, **settings}})


def test_an_edited_table_is_refused_by_its_search(table: Path) -> None:
    freeze_or_verify_settings(table.parent, experiment(known=table.name))
    write_result(table.parent)
    freeze_or_verify_settings(table.parent, experiment(known=table.name))
    table.write_text(table.read_text() + "\n")
    with pytest.raises(UserError, match=r"known\.csv"):
        freeze_or_verify_settings(table.parent, experiment(known=table.name))


def test_the_first_trials_have_the_own_settings_and_then_the_start_points(tmp_path: Path) -> None:
    """A point that leaves keys out has the experiment's own values of them; a repeated one is tried once."""
    made = experiment(
        start=[{LR: 0.5}, {SIZE: 64, LR: 0.25}, {LR: 0.5, SIZE: 16}], trials=5, method={"name": "random"}
    )
    made = made.model_copy(update={"train": made.train.model_copy(update={"batch_size": 16})})
    base = base_point(made)
    assert base is not None
    expected = [base, {LR: 0.5, SIZE: 16}, {LR: 0.25, SIZE: 64}]
    assert first_points(made) == expected
    study = Study.of(tmp_path, made, parallel=4)
    assert [study.decide() for _ in range(4)][-1]
    assert [trial.point for trial in study.trials][:3] == expected
    assert made.search is not None
    sampler = build_sampler(made.search)
    assert replay(tmp_path, made.search, 10, sampler, first_points(made)) == []
    assert len(replay(tmp_path, made.search, 10, sampler, [base])) == 2, (
        "the start points are not the sampler's"
    )


@pytest.mark.parametrize(
    ("start", "space", "words"),
    [
        ({LR: 2}, {}, f"{LR}: 2 is outside of log_uniform"),
        ({LR: 0.1}, {SIZE: [8, 9]}, f"{SIZE}: 50 is outside of choice .8, 9., the experiment's own value; give"),
        ({"train.lr": 1}, {}, "train.lr is not searched"),
        ({LR: 0.1, SIZE: 16, "model.args.a": 1}, {"model.args.a": {"choice": [1], "when": {SIZE: 32}}}, "model.args.a is not active"),
        ({LR: 0.1, SIZE: 16}, {"model.args.b": [1, 2]}, "lacks model.args.b, which the experiment"),
    ],
    ids=["outside", "own value outside", "not searched", "inactive", "unknown default"],
)  # fmt: skip
def test_a_start_point_that_is_not_in_the_space_is_refused(start: Any, space: Any, words: str) -> None:
    made = experiment(space=SPACE | space, start=[start])
    made = made.model_copy(update={"train": made.train.model_copy(update={"batch_size": 50})})
    with pytest.raises(UserError, match=words):
        first_points(made)
