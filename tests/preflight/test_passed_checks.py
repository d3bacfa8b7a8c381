"""Checks of models that passed before are not repeated, and everything that the check reads makes it run again."""

import subprocess
import sys
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from unittest.mock import Mock

import pytest

from nnlo_lib.core.errors import UserError
from nnlo_lib.experiment.load import load_with_origins
from nnlo_lib.preflight import model_check, passed_checks
from nnlo_lib.preflight.preflight import check_experiment

EXPERIMENT = "data: digits\nmodel: perceptron\n"


@pytest.fixture
def checked(tmp_path, monkeypatch):
    """Return a function that checks an experiment and returns how many models were tried."""
    monkeypatch.setenv("NNLO_CACHE", str(tmp_path / "new" / "folder"))
    tried = []
    check = model_check.check_model

    def counted(*arguments):
        tried.append(arguments)
        return check(*arguments)

    monkeypatch.setattr(model_check, "check_model", counted)

    def run(text: str, *changes: str) -> int:
        path = tmp_path / "experiment.yaml"
        path.write_text(text)
        before = len(tried)
        check_experiment(*load_with_origins(path, changes))
        return len(tried) - before

    return run


def test_a_passed_check_is_not_repeated_after_edits_that_it_does_not_read(checked):
    assert checked(EXPERIMENT) == 1
    assert checked(EXPERIMENT, "train.epochs=7", "seeds=[1,2]") == 0


@pytest.mark.parametrize(
    "change",
    [
        "model.args.hidden=[7]", "model.name=simplecnn", "train.precision=bf16", "loss=mae", "metrics=[top5_accuracy]",
        "data.normalize=standard", "data.dataset=mnist",
    ],
)  # fmt: skip
def test_an_edit_of_what_the_check_reads_repeats_it(checked, change):
    assert checked(EXPERIMENT) == 1
    assert checked(EXPERIMENT, change) == 1


def test_models_of_the_user_are_checked_each_time(checked, tmp_path):
    model = tmp_path / "mine.py"
    model.write_text(
        "from torch import nn\ndef build(shape, classes):\n    return nn.Sequential(nn.Flatten(), nn.Linear(64, classes))\n"
    )
    text = f"data: digits\nmodel: '{model}:build'\n"
    assert [checked(text), checked(text)] == [1, 1]


def test_mistakes_are_found_each_time(checked):
    for _ in range(2):
        with pytest.raises(UserError, match="no argument 'hiden'"):
            checked(EXPERIMENT, "model.args.hiden=[7]")


def damage(tmp_path, monkeypatch):
    (tmp_path / "new" / "folder" / "passed_checks").write_bytes(b"\xff\x00")


def change_code(tmp_path, monkeypatch):
    monkeypatch.setattr(passed_checks, "_installed", lambda: ("another version",))


def remove_home(tmp_path, monkeypatch):
    """A container runs under a user without an entry in /etc/passwd."""
    monkeypatch.delenv("NNLO_CACHE")
    monkeypatch.delenv("HOME")
    monkeypatch.setattr("pwd.getpwuid", {}.__getitem__)


def remove_metadata(tmp_path, monkeypatch):
    monkeypatch.setattr(passed_checks, "version", Mock(side_effect=PackageNotFoundError("torch")))
    passed_checks._installed.cache_clear()


@pytest.mark.parametrize("spoil", [damage, change_code, remove_home, remove_metadata])
def test_without_a_usable_record_the_check_is_repeated(checked, tmp_path, monkeypatch, spoil):
    assert checked(EXPERIMENT) == 1
    spoil(tmp_path, monkeypatch)
    assert checked(EXPERIMENT) == 1


def test_a_passed_check_does_not_import_torch(checked, tmp_path):
    checked(EXPERIMENT)
    program = (
        "import sys\nfrom nnlo_lib.preflight.preflight import load_and_check\n"
        "load_and_check(sys.argv[1])\nassert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program, Path(tmp_path, "experiment.yaml")], check=True)
