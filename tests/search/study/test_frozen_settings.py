"""A resumed search refuses changes of the settings that determine its trials, and accepts the others.

tests/workflow/test_edit_effects.py edits every key; these tests cover the messages, the order of keys, and files.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from helpers.simulated_search import SPACE
from helpers.trial_results import write_result

from nnlo_lib.config import Experiment, merge_settings
from nnlo_lib.config.paths import SearchPaths
from nnlo_lib.core.errors import UserError
from nnlo_lib.search.samplers.base import build_sampler
from nnlo_lib.search.study.snapshot import StudySnapshot
from nnlo_lib.search.study.storage import freeze_or_verify_settings, settings_to_freeze, verify_settings

BASE: dict[str, Any] = {"name": "x", "search": {"space": SPACE}}
EDIT = {"train": {"epochs": 11}}


def experiment(changes: dict[str, Any]) -> Experiment:
    return Experiment.model_validate(merge_settings(BASE, changes))


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of a search."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (EDIT, "train.epochs was 10 and is 11"),
        ({"seeds": [1, 0]}, "seeds was 0 and is 1"),
        ({"search": {"order": "fixed"}}, 'search.order was "as_finished" and is "fixed"'),
        ({"search": {"method": {"name": "auto", "initial": 7}}}, "search.method.initial was null and is 7"),
        ({"search": {"objective": {"max_seconds": 5}}}, "search.objective.max_seconds was null and is 5.0"),
        ({"search": {"space": {"train.batch_size": [16]}}}, "search.space.train.batch_size.choice was"),
        (
            {"search": {"space": {"train.epochs": 3}}},
            'search.space.train.epochs was null and is {"constant": 3}',
        ),
        ({"train": {"epochs": 3}, "search": {"seed": 2}}, "train.epochs was 10 and is 3; "),
        ({"train": {"epochs": 3}, "search": {"seed": 2}}, "search.seed was 0 and is 2"),
    ],
    ids=str,
)
def test_every_changed_setting_is_named(changes: dict[str, Any], words: str, folder: Path) -> None:
    freeze_or_verify_settings(folder, experiment({}))
    write_result(folder)
    for _ in range(2):
        with pytest.raises(UserError) as refused:
            freeze_or_verify_settings(folder, experiment(changes))
        assert words.rstrip("; ") in str(refused.value)
        assert f"delete {folder}" in str(refused.value)
        # The old trials can count in another space only.
        assert ("`search.known: " in str(refused.value)) == (words.startswith("search.space"))
    freeze_or_verify_settings(folder, experiment({}))


def test_an_edit_of_the_table_of_known_results_is_noticed(folder: Path) -> None:
    (folder / "known.csv").write_text("trial\n0\n")
    settings = experiment({"search": {"known": "known.csv"}})
    freeze_or_verify_settings(folder, settings)
    write_result(folder)
    (folder / "known.csv").write_text("trial\n1\n")
    with pytest.raises(UserError, match=r"known\.csv"):
        freeze_or_verify_settings(folder, settings)


def proposals(found: Experiment) -> list[Any]:
    assert found.search is not None
    known = StudySnapshot(found.search, 9, (), {})
    propose = build_sampler(found.search)
    return [propose(number, known) for number in range(4)]


@pytest.mark.parametrize("method", ["sobol", "random", "genetic", "auto"])
def test_the_order_of_keys_changes_no_proposal(method: str, folder: Path) -> None:
    one, other = (
        Experiment.model_validate({"name": "x", "search": {"space": space, "method": {"name": method}}})
        for space in (SPACE, dict(reversed(SPACE.items())))
    )
    expected = proposals(freeze_or_verify_settings(folder / "1", one))
    assert proposals(freeze_or_verify_settings(folder / "2", other)) == expected, "a new search"
    assert proposals(freeze_or_verify_settings(folder / "1", other)) == expected, "a resumed search"


def test_a_search_of_an_older_version_keeps_the_order_of_its_keys(folder: Path) -> None:
    keys = sorted(SPACE, reverse=True)
    first = Experiment.model_validate({"name": "x", "search": {"space": {key: SPACE[key] for key in keys}}})
    (folder / "search.json").write_text(json.dumps(settings_to_freeze(first)))
    for space in (SPACE, {key: SPACE[key] for key in sorted(SPACE)}):
        found = freeze_or_verify_settings(
            folder, Experiment.model_validate({"name": "x", "search": {"space": space}})
        )
        assert found.search is not None
        assert list(found.search.space) == keys
        assert proposals(found) == proposals(first)


def test_a_damaged_file_is_named(folder: Path) -> None:
    (folder / "search.json").write_text('{"search": ')
    with pytest.raises(UserError, match=rf"{folder}/search.json"):
        freeze_or_verify_settings(folder, experiment({}))


CODE = """
from nnlo_lib import Pruner

def build(shape, classes):
    pass

class Mine(Pruner):
    def rungs(self, trial, epochs):
        return (epochs,)
    def promote(self, known):
        return None
"""
NAMING = {
    "model": {"model": {"name": "mine.py:build"}},
    "searched model": {"search": {"space": {"model.name": ["simplemlp", "mine.py:build"]}}},
    "loss": {"loss": "mine.py:build"},
    "metric": {"metrics": ["mine.py:build"]},
    "pruner": {"search": {"fidelity": {"name": "mine.py:Mine"}}},
}


@pytest.mark.parametrize("changes", NAMING.values(), ids=NAMING)
def test_the_users_own_files_may_not_change(changes: dict[str, Any], folder: Path) -> None:
    Path("mine.py").write_text(CODE)
    freeze_or_verify_settings(folder, experiment(changes))
    write_result(folder)
    freeze_or_verify_settings(folder, experiment(changes))
    Path("mine.py").write_text(CODE.replace("None", "(0, 1)"))
    with pytest.raises(UserError, match=r'files\.mine\.py was "\w+" and is "\w+"'):
        freeze_or_verify_settings(folder, experiment(changes))


@pytest.mark.parametrize("status", [None, "failed", "unwanted"])
def test_without_a_result_any_setting_may_change(status: str | None, folder: Path) -> None:
    freeze_or_verify_settings(folder, experiment({}))
    paths = SearchPaths(folder)
    if status:
        write_result(folder, status)
    (paths.trials / "0000/fold-0").mkdir(parents=True, exist_ok=True)
    verify_settings(folder, experiment(EDIT))
    assert paths.trials.exists(), "a check writes nothing"
    freeze_or_verify_settings(folder, experiment(EDIT))
    assert not paths.trials.exists()
    assert (folder / "former-1/trials/0000/fold-0").is_dir()
    write_result(folder)
    with pytest.raises(UserError, match=r"train\.epochs was 11 and is 10"):
        freeze_or_verify_settings(folder, experiment({}))


def test_a_trial_that_may_be_training_locks_the_settings(folder: Path) -> None:
    freeze_or_verify_settings(folder, experiment({}))
    lease = SearchPaths(folder).fold(0, 0).state.lease
    lease.parent.mkdir(parents=True)
    lease.write_text("{}")
    with pytest.raises(UserError, match=r"train\.epochs was 10 and is 11"):
        freeze_or_verify_settings(folder, experiment(EDIT))
