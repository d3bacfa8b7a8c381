"""docs/reference/cli.md has a section for each command and describes all its arguments."""

import re
from pathlib import Path

from helpers.nnlo_command import nnlo

from nnlo_lib.cli import COMMANDS
from nnlo_lib.commands.task import STEPS

PAGE = (Path(__file__).parents[2] / "docs/reference/cli.md").read_text()


def test_page_is_in_step():
    """The page is up to date; if this test fails, run `nnlo docs`."""
    done = nnlo("docs", "--check")
    assert done.returncode == 0, done.stdout


def test_every_command_has_a_section():
    headings = set(re.findall(r"^##+ `(.*)`$", PAGE, re.MULTILINE))
    assert headings == {f"nnlo {name}" for name in COMMANDS} | {f"nnlo task {name}" for name in STEPS}


def test_arguments_of_commands_are_described():
    commands = PAGE.partition("## `nnlo task`")[0]
    assert re.findall(r"^\| `.*\|\s*\|$", commands, re.MULTILINE) == []
