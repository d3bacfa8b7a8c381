"""The page of the classes that users extend has every member of the code; its mistakes and its test of a class are real."""

import re
import runpy
import sys
from importlib.util import module_from_spec, spec_from_file_location

import pytest
from helpers.document_blocks import EXTENSION_PAGES, REPOSITORY, write_files
from helpers.training_here import run_here, share_store

SPEC = spec_from_file_location("interfaces_page", REPOSITORY / "docs/interfaces_page.py")
page = module_from_spec(SPEC)
SPEC.loader.exec_module(page)
TEXT = page.PAGE.read_text()
ROWS = re.findall(r"^\| (.+) \| `(.+)` → `(.+)` \| (.*`.*) \|$", TEXT, re.MULTILINE)
SHORT = [
    "--set",
    "parallel.transport=simulated",
    "--set",
    "train.epochs=2",
    "--set",
    "train.steps_per_epoch=2",
]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Return the working folder, with majority.py, majority.yaml, and its test."""
    for name in ("algorithm", "interfaces"):
        write_files(EXTENSION_PAGES / f"{name}.md", tmp_path)
    share_store(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_page_is_that_of_the_code_and_keeps_what_is_written_by_hand():
    assert page.interfaces_page(TEXT) == TEXT, "run `make docs`"
    written = page.interfaces_page(f"before\n{page.BEGIN}of before{page.END}after\n")
    assert written.startswith(f"before\n{page.BEGIN}\n## Algorithms\n")
    assert written.endswith(f"{page.END}after\n")
    assert "of before" not in written


def test_every_shown_member_exists_and_says_something():
    for name, members in page.MEMBERS.items():
        section = TEXT.partition(f"### `{name}`\n")[2].partition("\n### ")[0]
        assert re.findall(r"^\* `(\w+)", section, re.MULTILINE) == sorted(
            members.split(), key=lambda member: section.index(f"* `{member}")
        )
    assert re.findall(r"^\* `[^`]*`:? *$", TEXT, re.MULTILINE) == []
    assert TEXT.count(" *Required.*") >= 10


@pytest.mark.long("a training of simulated ranks for some of the mistakes")
@pytest.mark.parametrize(("change", "message"), [((old, new), message) for _, old, new, message in ROWS])
def test_a_mistake_has_its_message(folder, change, message):
    files = [folder / "majority.py", folder / "majority.yaml"]
    (changed,) = [file for file in files if change[0] in file.read_text()]
    changed.write_text(changed.read_text().replace(*change))
    done = run_here("majority.yaml", *SHORT, folder=folder)
    said = (done.stdout + done.stderr).replace("`", "'")
    for part in re.findall(r"`([^`]+)`", message):
        assert part in said


@pytest.mark.parametrize(
    ("old", "new", "is_found"), [("", "", False), ("torch.sign(replica.grad)", "replica.grad", True)]
)
def test_the_test_of_the_page_finds_a_vote_by_size(folder, monkeypatch, old, new, is_found):
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(sys.modules, "majority", raising=False)
    (folder / "majority.py").write_text((folder / "majority.py").read_text().replace(old, new))
    found = runpy.run_path("test_majority.py")["test_two_of_three_ranks_decide"]
    if is_found:
        with pytest.raises(AssertionError):
            found()
    else:
        found()
