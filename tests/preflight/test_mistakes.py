"""`nnlo check` names each of the usual mistakes in one sentence, with status 2 and without a traceback."""

import pytest
import torch
from helpers.nnlo_command import nnlo, refused
from helpers.user_mistakes import EXAMPLES


@pytest.fixture
def folder(tmp_path):
    """Return a folder with weights of another net."""
    torch.save({"conv.weight": torch.zeros(3)}, tmp_path / "w.pt")
    return tmp_path


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.title)
def test_mistake_is_named(example, folder):
    example.write(folder)
    message = refused(nnlo("check", "x.yaml", folder=folder))
    assert example.sentence in message
    assert message.count("\n  ") == 1, "one mistake in one line"


@pytest.mark.parametrize("command", ["check", "run", "plan", "simulate"])
def test_no_command_starts_with_a_mistake(command, folder):
    EXAMPLES[0].write(folder)
    assert EXAMPLES[0].sentence in refused(nnlo(command, "x.yaml", folder=folder))
    assert not (folder / "results").exists()
    assert not (folder / "data").exists()
