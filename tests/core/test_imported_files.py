"""Files of the user's code that a file imports, compared with what Python itself loads."""

import subprocess
import sys
from pathlib import Path

import pytest

from nnlo_lib.core.user_code import imported_files, load_user_module

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
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_all_files_of_the_project_that_a_file_imports_are_found(project):
    expected = [
        "common.py", "nets/blocks/__init__.py", "nets/blocks/inner/__init__.py", "nets/blocks/inner/deep.py",
        "nets/blocks/sibling.py", "nets/layers.py", "nets/lazy.py", "nets/my_model.py",
    ]  # fmt: skip
    assert list(imported_files("nets/my_model.py")) == expected


@pytest.mark.processes
def test_python_loads_no_file_that_is_not_found(project):
    (project / "nets/blocks/inner/deep.py").write_text("from ..sibling import *\n")
    shown = subprocess.run(
        [sys.executable, "-c", LOAD, str(project)], text=True, capture_output=True, check=True
    )
    loaded = {str(Path(line).relative_to(project)) for line in shown.stdout.split()}
    assert loaded == set(imported_files("nets/my_model.py")) - {"nets/my_model.py"}


def test_a_file_outside_the_working_directory_is_named_by_its_full_path(project, monkeypatch):
    monkeypatch.chdir(project / "nets/blocks")
    assert str(project / "nets/layers.py") in imported_files("../my_model.py")
    assert "sibling.py" in imported_files("../my_model.py")


@pytest.mark.parametrize("text", ["def broken(:\n", "\0"])
def test_a_file_that_is_not_python_is_found_alone(project, text):
    (project / "broken.py").write_text(text)
    assert imported_files("broken.py") == ("broken.py",)
    assert imported_files("missing.py") == ("missing.py",)


def test_a_module_beside_the_file_is_importable_wherever_the_file_is(tmp_path):
    (tmp_path / "beside_it.py").write_text("value = 7\n")
    (tmp_path / "importing.py").write_text("from beside_it import value\n")
    assert load_user_module(str(tmp_path / "importing.py")).value == 7
