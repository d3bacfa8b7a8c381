"""The folder of the Python interpreter, which commands get in PATH."""

import sys
from pathlib import Path

import pytest

from nnlo_lib.core.errors import UserError
from nnlo_lib.core.process import interpreter_folder


def test_a_folder_that_path_cannot_contain_is_refused(monkeypatch):
    assert interpreter_folder() == Path(sys.executable).parent
    monkeypatch.setattr(sys, "executable", "/a:b/.venv/bin/python")
    with pytest.raises(UserError, match=r"^/a:b/.venv/bin: .* cannot be in PATH, .* contains ':'; create"):
        interpreter_folder()
