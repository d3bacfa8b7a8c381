"""Import of the user's code, also after edits, and the files that it imports, compared with what Python itself loads."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from nnlo_lib.core.user_code import imported_files, load_implementation, load_user_function, load_user_module

FILES = {
    "nets/my_model.py": "import numpy\nimport layers\nfrom blocks.inner import deep\nfrom common import scale\n",
    "nets/layers.py": "def late():\n    import lazy\n",
    "nets/lazy.py": "",
    "nets/blocks/__init__.py": "from . import sibling\n",
    "nets/blocks/sibling.py": "",
    "nets/blocks/inner/__init__.py": "",
    "nets/blocks/inner/deep.py": "from ..sibling import *\nfrom ...nets import nothing\n",
    "nets/unused.py": "",
    "nets/json.py": "this is never loaded",
    "common.py": "import layers\nscale = 1\n",
}
LOAD = """
import sys
from nnlo_lib.core.user_code import load_user_module
load_user_module("nets/my_model.py").layers.late()
files = [getattr(module, "__file__", None) or "" for module in sys.modules.values()]
print(*[file for file in files if file.startswith(sys.argv[1])], sep="\\n")
"""


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


IMPORTS = {
    "by name": "importlib.import_module('shared_layers.late').VALUE",
    "by a computed name": "importlib.import_module('.'.join(['shared_layers', 'late'])).VALUE",
    "by __import__": "__import__('shared_layers.late').late.VALUE",
    "a file": "importlib.import_module('_'.join(['single', 'helper'])).VALUE",
}


@pytest.mark.parametrize("expression", IMPORTS.values(), ids=IMPORTS)
def test_modules_that_a_function_imports_when_it_is_called(tmp_path, monkeypatch, expression):
    """A package without __init__.py, as usual beside scripts; each file uses its own, in any order."""
    monkeypatch.chdir(tmp_path)
    for folder in ("one", "two"):
        (tmp_path / folder / "shared_layers").mkdir(parents=True)
        for name in ("shared_layers/late.py", "single_helper.py"):
            (tmp_path / folder / name).write_text(f"VALUE = '{folder}'\n")
        (tmp_path / folder / "net.py").write_text(f"import importlib\ndef build(): return {expression}\n")
    for folder in ("one", "two", "one", "two"):
        assert load_user_function(f"{folder}/net.py:build")() == folder


def test_keras_computes_with_torch_for_every_user_file(tmp_path, monkeypatch):
    """A data module that imports Keras first got the backend of tensorflow, which is not installed."""
    monkeypatch.setenv("KERAS_BACKEND", "tensorflow")
    monkeypatch.delenv("KERAS_TORCH_DEVICE", raising=False)
    (tmp_path / "mine.py").write_text("import os\ndef backend():\n    return os.environ['KERAS_BACKEND']\n")
    assert load_user_function(f"{tmp_path / 'mine.py'}:backend")() == "torch"


@pytest.fixture
def network(tmp_path, monkeypatch):
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_all_files_of_the_project_that_a_file_imports_are_found(network):
    expected = [
        "common.py", "nets/blocks/__init__.py", "nets/blocks/inner/__init__.py", "nets/blocks/inner/deep.py",
        "nets/blocks/sibling.py", "nets/layers.py", "nets/lazy.py", "nets/my_model.py",
    ]  # fmt: skip
    assert list(imported_files("nets/my_model.py")) == expected


@pytest.mark.processes
def test_python_loads_no_file_that_is_not_found(network):
    (network / "nets/blocks/inner/deep.py").write_text("from ..sibling import *\n")
    shown = subprocess.run(
        [sys.executable, "-c", LOAD, str(network)], text=True, capture_output=True, check=True
    )
    loaded = {str(Path(line).relative_to(network)) for line in shown.stdout.split()}
    assert loaded == set(imported_files("nets/my_model.py")) - {"nets/my_model.py"}


def test_a_file_outside_the_working_directory_is_named_by_its_full_path(network, monkeypatch):
    monkeypatch.chdir(network / "nets/blocks")
    assert str(network / "nets/layers.py") in imported_files("../my_model.py")
    assert "sibling.py" in imported_files("../my_model.py")


@pytest.mark.parametrize("text", ["def broken(:\n", "\0"])
def test_a_file_that_is_not_python_is_found_alone(network, text):
    (network / "broken.py").write_text(text)
    assert imported_files("broken.py") == ("broken.py",)
    assert imported_files("missing.py") == ("missing.py",)


def test_a_module_beside_the_file_is_importable_wherever_the_file_is(tmp_path):
    (tmp_path / "beside_it.py").write_text("value = 7\n")
    (tmp_path / "importing.py").write_text("from beside_it import value\n")
    assert load_user_module(str(tmp_path / "importing.py")).value == 7
