"""A resumed search refuses changes of the settings that determine its trials, and accepts the others."""

import json
from pathlib import Path
from typing import Any

import pytest
from helpers.simulated_search import SPACE
from helpers.trial_results import write_result

from nnlo_lib.config import Experiment, merge_settings
from nnlo_lib.config.paths import SearchPaths
from nnlo_lib.core.errors import UserError
from nnlo_lib.search.samplers.factory import build_sampler
from nnlo_lib.search.study.frozen_settings import (
    freeze_or_verify_settings,
    settings_to_freeze,
    verify_settings,
)
from nnlo_lib.search.study.snapshot import StudySnapshot

BASE: dict[str, Any] = {"name": "x", "search": {"space": SPACE}}


def experiment(changes: dict[str, Any]) -> Experiment:
    return Experiment.model_validate(BASE | changes if "name" in changes else merge_settings(BASE, changes))


FREE = [
    {},
    {"name": "y"},
    {"seeds": [0, 1]},
    {"search": {"trials": 99}},
    {"search": {"parallel": 9}},
    {"search": {"budget": {"hours": 1}}},
    {"search": {"objective": {"target": 0.1}}},
    {"resources": {"runtime": 7}},
    {"checkpoint": {"keep": 5}},
    {"runs": {"other": {"train": {"batch_size": 8}}}},
]
FROZEN = [
    ({"train": {"epochs": 11}}, "train.epochs was 10 and is 11"),
    (
        {"train": {"optimizer": {"name": "adam", "lr": 0.02}}},
        "train.optimizer.lr was 0.003 and is 0.02",
    ),
    ({"seeds": [1, 0]}, "seeds was 0 and is 1"),
    ({"search": {"seed": 1}}, "search.seed was 0 and is 1"),
    ({"search": {"order": "fixed"}}, 'search.order was "as_finished" and is "fixed"'),
    ({"search": {"method": {"name": "random"}}}, 'search.method.name was "forest" and is "random"'),
    ({"search": {"method": {"name": "forest", "trees": 7}}}, "search.method.trees was 100 and is 7"),
    ({"search": {"folds": {"k": 3}}}, "search.folds.k was 1 and is 3"),
    ({"search": {"fidelity": {"name": "asha"}}}, 'search.fidelity.name was "full" and is "asha"'),
    ({"search": {"objective": {"epoch": "last"}}}, 'search.objective.epoch was "best" and is "last"'),
    ({"search": {"objective": {"max_seconds": 5}}}, "search.objective.max_seconds was null and is 5.0"),
    ({"search": {"space": {"train.batch_size": [16]}}}, "search.space.train.batch_size.choice was"),
    (
        {"search": {"space": {"train.epochs": 3}}},
        r"search.space.train.epochs was null and is {\"constant\": 3}",
    ),
]


@pytest.mark.parametrize("changes", FREE, ids=str)
def test_what_may_change(changes: dict[str, Any], tmp_path: Path) -> None:
    freeze_or_verify_settings(tmp_path, experiment({}))
    freeze_or_verify_settings(tmp_path, experiment(changes))
    freeze_or_verify_settings(tmp_path, experiment({}))


@pytest.mark.parametrize(("changes", "words"), FROZEN, ids=[words for _, words in FROZEN])
def test_what_may_not(changes: dict[str, Any], words: str, tmp_path: Path) -> None:
    freeze_or_verify_settings(tmp_path, experiment({}))
    write_result(tmp_path)
    for _ in range(2):
        with pytest.raises(UserError) as told:
            freeze_or_verify_settings(tmp_path, experiment(changes))
        assert words.replace("\\", "") in str(told.value)
        assert f"delete {tmp_path}" in str(told.value)
    freeze_or_verify_settings(tmp_path, experiment({}))


def test_every_difference_is_named(tmp_path: Path) -> None:
    freeze_or_verify_settings(tmp_path, experiment({}))
    write_result(tmp_path)
    with pytest.raises(
        UserError, match=r"train.epochs was 10 and is 3; .*search.seed was 0 and is 2|search.seed.*epochs"
    ):
        freeze_or_verify_settings(tmp_path, experiment({"train": {"epochs": 3}, "search": {"seed": 2}}))


def proposals(found: Experiment) -> list[Any]:
    assert found.search is not None
    known = StudySnapshot(found.search, 9, (), {})
    propose = build_sampler(found.search)
    return [propose(number, known) for number in range(4)]


@pytest.mark.parametrize("method", ["sobol", "random", "genetic", "forest"])
def test_the_order_of_keys_changes_no_proposal(method: str, tmp_path: Path) -> None:
    one, other = (
        Experiment.model_validate({"name": "x", "search": {"space": space, "method": {"name": method}}})
        for space in (SPACE, dict(reversed(SPACE.items())))
    )
    assert proposals(freeze_or_verify_settings(tmp_path / "1", one)) == proposals(
        freeze_or_verify_settings(tmp_path / "2", other)
    ), "a new search"
    assert proposals(freeze_or_verify_settings(tmp_path / "1", other)) == proposals(
        freeze_or_verify_settings(tmp_path / "1", one)
    ), "one that goes on"


def test_a_search_of_before_keeps_the_order_it_began_with(tmp_path: Path) -> None:
    keys = sorted(SPACE, reverse=True)
    first = Experiment.model_validate({"name": "x", "search": {"space": {key: SPACE[key] for key in keys}}})
    (tmp_path / "search.json").write_text(json.dumps(settings_to_freeze(first)))
    for space in (SPACE, {key: SPACE[key] for key in sorted(SPACE)}):
        found = freeze_or_verify_settings(
            tmp_path, Experiment.model_validate({"name": "x", "search": {"space": space}})
        )
        assert found.search is not None
        assert list(found.search.space) == keys
        assert proposals(found) == proposals(first)


@pytest.mark.parametrize("text", ["", '{"search": ', "[]"])
def test_a_damaged_file_is_named(text: str, tmp_path: Path) -> None:
    (tmp_path / "search.json").write_text(text)
    with pytest.raises(UserError, match=rf"{tmp_path}/search.json"):
        freeze_or_verify_settings(tmp_path, experiment({}))


CODE = "def build(shape, classes):\n    pass\n"
NAMING = {
    "model": {"model": {"name": "mine.py:build"}},
    "searched model": {"search": {"space": {"model.name": ["simplemlp", "mine.py:build"]}}},
    "loss": {"loss": "mine.py:build"},
    "metric": {"metrics": ["mine.py:build"]},
}


@pytest.mark.parametrize("changes", NAMING.values(), ids=NAMING)
def test_the_users_own_files_may_not_change(
    changes: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(CODE)
    freeze_or_verify_settings(tmp_path, experiment(changes))
    write_result(tmp_path)
    freeze_or_verify_settings(tmp_path, experiment(changes))
    Path("mine.py").write_text(CODE.replace("pass", "return None"))
    with pytest.raises(UserError, match=r'files\.mine\.py was "\w+" and is "\w+"'):
        freeze_or_verify_settings(tmp_path, experiment(changes))


def test_an_older_search_has_no_files_to_compare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(CODE)
    freeze_or_verify_settings(tmp_path, experiment(NAMING["model"]))
    written = json.loads((tmp_path / "search.json").read_text())
    del written["files"]
    (tmp_path / "search.json").write_text(json.dumps(written))
    freeze_or_verify_settings(tmp_path, experiment(NAMING["model"]))


PRUNER = """
from nnlo_lib import Pruner

class Mine(Pruner):
    def rungs(self, trial, epochs):
        return (epochs,)
    def promote(self, known):
        return None
"""


def test_the_file_of_a_users_pruner_may_not_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(PRUNER)
    changes = {"search": {"space": {"train.epochs": [1, 2]}, "fidelity": {"name": "mine.py:Mine"}}}
    freeze_or_verify_settings(tmp_path, experiment(changes))
    write_result(tmp_path)
    Path("mine.py").write_text(PRUNER.replace("None", "(0, 1)"))
    with pytest.raises(UserError, match=r'files\.mine\.py was "\w+" and is "\w+"'):
        freeze_or_verify_settings(tmp_path, experiment(changes))


EDIT = {"train": {"epochs": 11}}


@pytest.mark.parametrize("status", [None, "failed", "unwanted"])
def test_without_a_result_any_setting_may_change(status: str | None, tmp_path: Path) -> None:
    freeze_or_verify_settings(tmp_path, experiment({}))
    paths = SearchPaths(tmp_path)
    if status:
        write_result(tmp_path, status)
    (paths.trials / "0000/fold-0").mkdir(parents=True, exist_ok=True)
    verify_settings(tmp_path, experiment(EDIT))
    assert paths.trials.exists(), "a check writes nothing"
    freeze_or_verify_settings(tmp_path, experiment(EDIT))
    assert not paths.trials.exists()
    assert (tmp_path / "former-1/trials/0000/fold-0").is_dir()
    write_result(tmp_path)
    with pytest.raises(UserError, match=r"train\.epochs was 11 and is 10"):
        freeze_or_verify_settings(tmp_path, experiment({}))


def test_a_trial_that_may_be_training_locks_the_settings(tmp_path: Path) -> None:
    freeze_or_verify_settings(tmp_path, experiment({}))
    lease = SearchPaths(tmp_path).fold(0, 0).state.lease
    lease.parent.mkdir(parents=True)
    lease.write_text("{}")
    with pytest.raises(UserError, match=r"train\.epochs was 10 and is 11"):
        freeze_or_verify_settings(tmp_path, experiment(EDIT))
