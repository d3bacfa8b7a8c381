"""Fixtures that translate a command and load the resulting experiment file."""

from collections.abc import Callable

import pytest

from nnlo_lib.compat.importers.translate import translate
from nnlo_lib.config import Experiment
from nnlo_lib.core.errors import UserError
from nnlo_lib.experiment.load import load_experiment


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Return the empty folder in which the test runs."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def imported(folder) -> Callable[..., tuple[Experiment, str]]:
    """Return a function that translates a command and returns the loaded experiment and its YAML."""

    def read(*words: str) -> tuple[Experiment, str]:
        text = translate(words)
        (folder / "imported.yaml").write_text(text)
        return load_experiment("imported.yaml"), text

    return read


@pytest.fixture
def refused(folder) -> Callable[..., str]:
    """Return a function that returns the error message of a refused command."""

    def sentence(*words: str) -> str:
        with pytest.raises(UserError) as error:
            translate(words)
        return str(error.value)

    return sentence
