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


def test_changed_code_of_the_package_repeats_it(checked, monkeypatch):
    assert checked(EXPERIMENT) == 1
    monkeypatch.setattr(passed_checks, "_installed", lambda: ("another version",))
    assert checked(EXPERIMENT) == 1


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


def test_a_damaged_file_repeats_the_check(checked, tmp_path):
    assert checked(EXPERIMENT) == 1
    (tmp_path / "new" / "folder" / "passed_checks").write_bytes(b"\xff\x00")
    assert checked(EXPERIMENT) == 1


def test_without_a_home_folder_the_check_is_done_each_time(checked, monkeypatch):
    """A container runs under a user without an entry in /etc/passwd."""
    monkeypatch.delenv("NNLO_CACHE")
    monkeypatch.delenv("HOME")
    monkeypatch.setattr("pwd.getpwuid", {}.__getitem__)
    assert [checked(EXPERIMENT), checked(EXPERIMENT)] == [1, 1]


def test_without_the_metadata_of_torch_the_check_is_done_each_time(checked, monkeypatch):
    monkeypatch.setattr(passed_checks, "version", Mock(side_effect=PackageNotFoundError("torch")))
    passed_checks._installed.cache_clear()
    assert [checked(EXPERIMENT), checked(EXPERIMENT)] == [1, 1]


def test_a_passed_check_does_not_import_torch(checked, tmp_path):
    checked(EXPERIMENT)
    program = (
        "import sys\nfrom nnlo_lib.preflight.preflight import load_and_check\n"
        "load_and_check(sys.argv[1])\nassert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program, Path(tmp_path, "experiment.yaml")], check=True)
