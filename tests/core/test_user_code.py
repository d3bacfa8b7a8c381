"""A session that loads the user's code several times runs the code in the files."""

import os
from pathlib import Path

import pytest

from nnlo_lib.core.user_code import load_implementation, load_user_function


@pytest.fixture
def project(tmp_path, monkeypatch):
    """Return a project whose file imports a module; both are unknown to other tests."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "edited_helper.py").write_text("VALUE = 1\n")
    (tmp_path / "edited_main.py").write_text(
        "from edited_helper import VALUE\n\ndef value():\n    return VALUE\n"
    )
    return tmp_path


def edit(path: Path, text: str) -> None:
    """Write a file with a later modification time: two writes can fall into one tick of the clock."""
    later = path.stat().st_mtime_ns + 2 * 10**9
    path.write_text(text)
    os.utime(path, ns=(later, later))


@pytest.mark.parametrize("load", [load_user_function, load_implementation])
def test_an_edited_import_is_loaded_again(project, load):
    assert load("edited_main.py:value")() == 1
    edit(project / "edited_helper.py", "VALUE = 2\n")
    assert load("edited_main.py:value")() == 2


def test_an_unchanged_class_stays_the_same(project):
    assert load_implementation("edited_main.py:value") is load_implementation("edited_main.py:value")


def test_modules_of_one_name_in_two_folders_are_two_modules(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in "ab":
        (tmp_path / name).mkdir()
        (tmp_path / name / "same_name.py").write_text(f"VALUE = {name!r}\n")
        (tmp_path / name / "main.py").write_text(
            "from same_name import VALUE\n\ndef value():\n    return VALUE\n"
        )
    assert [load_user_function(f"{name}/main.py:value")() for name in "aba"] == ["a", "b", "a"]


def test_keras_computes_with_torch_for_every_user_file(tmp_path, monkeypatch):
    """A data module that imports Keras first got the backend of tensorflow, which is not installed."""
    monkeypatch.setenv("KERAS_BACKEND", "tensorflow")
    monkeypatch.delenv("KERAS_TORCH_DEVICE", raising=False)
    (tmp_path / "mine.py").write_text("import os\ndef backend():\n    return os.environ['KERAS_BACKEND']\n")
    assert load_user_function(f"{tmp_path / 'mine.py'}:backend")() == "torch"
