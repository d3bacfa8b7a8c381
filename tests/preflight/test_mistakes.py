"""`nnlo check` names each of the usual mistakes in one sentence, with status 2 and without a traceback."""

import pytest
import torch
from helpers.nnlo_command import nnlo, nnlo_process, refused
from helpers.user_mistakes import EXAMPLES


@pytest.fixture
def folder(tmp_path):
    """Return a folder with weights of another net."""
    torch.save({"conv.weight": torch.zeros(3)}, tmp_path / "w.pt")
    return tmp_path


def test_there_are_60():
    assert len(EXAMPLES) >= 60
    assert len({example.title for example in EXAMPLES}) == len(EXAMPLES)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.title)
def test_mistake_is_named(example, folder):
    example.write(folder)
    said = refused(nnlo("check", "x.yaml", folder=folder))
    assert example.sentence in said
    assert said.count("\n  ") == 1, "one mistake, told once"


@pytest.mark.parametrize("example", [EXAMPLES[0]], ids=lambda example: example.title)
@pytest.mark.parametrize("command", ["check", "run", "plan", "simulate"])
@pytest.mark.processes
def test_no_command_starts_with_a_mistake(command, example, folder):
    example.write(folder)
    assert example.sentence in refused(nnlo_process(command, "x.yaml", folder=folder))
    assert not (folder / "results").exists()
    assert not (folder / "data").exists()
