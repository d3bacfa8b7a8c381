"""Files of another user that a command would have to write: named with owner and remedy before anything is written."""

import os
from pathlib import Path

import pytest
from helpers.other_users import GROUP, MEMBERS, VICTIM, run_as, shared_place

from nnlo_lib.core.atomic_file import atomic_write
from nnlo_lib.core.errors import UserError, exit_on_user_error
from nnlo_lib.core.file_access import refuse_unwritable
from nnlo_lib.core.file_lock import exclusive_lock
from nnlo_lib.state.lease import Lease

__all__ = ["shared_place"]
pytestmark = pytest.mark.processes
FIRST, SECOND = MEMBERS


@pytest.fixture
def project(shared_place):
    """Return the folder of a group, with the bit setgid, as the working directory of both members."""
    (folder := shared_place.parent / "project").mkdir()
    os.chown(folder, 0, GROUP)
    folder.chmod(0o2775)
    before = Path.cwd()
    os.chdir(folder)
    yield folder
    os.chdir(before)


def results():
    for name in ("results/grp/a/seed-0/state", "data/digits"):
        Path(name).mkdir(parents=True)
    for name in (
        "results/grp/a/seed-0/state/attempts.jsonl",
        "data/digits/.lock",
        "results/grp/a/config.json",
    ):
        Path(name).write_text("of the first member")


def refused(work):
    """Return the message of the UserError with which the second member's work ends."""

    def message():
        with pytest.raises(UserError) as refusal:
            work()
        return str(refusal.value)

    return run_as(SECOND, message, GROUP)


def contents():
    return {str(path): path.is_dir() or path.read_text() for path in Path().rglob("*")}


def test_members_of_a_group_write_what_the_umask_allows(project):
    run_as(FIRST, results, GROUP, umask=0o002)
    run_as(SECOND, lambda: refuse_unwritable(Path("results/grp"), Path("data"), Path("new/folder")), GROUP)


@pytest.mark.parametrize(("umask", "mode"), [(0o022, "g+w"), (0o077, "g+rwX")])
def test_the_first_file_is_named_with_its_owner_and_a_remedy(project, umask, mode):
    run_as(FIRST, results, GROUP, umask=umask)
    before = contents()
    advice = f"ask for `chmod -R {mode} results`, or work in a folder of your own"
    text = f"{{}} belongs to user {FIRST}, and you cannot write there; {advice}"
    assert refused(lambda: refuse_unwritable(Path("results"))) == text.format("results")
    assert refused(lambda: refuse_unwritable(Path("results/new"))) == text.format("results")
    assert contents() == before


def test_one_file_in_folders_of_the_group_is_named(project):
    run_as(FIRST, results, GROUP, umask=0o002)
    Path("results/grp/a/seed-0/state/attempts.jsonl").chmod(0o644)
    said = refused(lambda: refuse_unwritable(Path("results/grp")))
    assert said.startswith(f"results/grp/a/seed-0/state/attempts.jsonl belongs to user {FIRST}, ")
    assert "`chmod -R g+w results/grp`" in said


def test_a_folder_without_setgid_needs_another_group(project):
    project.chmod(0o777)
    run_as(VICTIM, results, umask=0o002)
    assert f"`chgrp -R {GROUP} results; chmod -R g+w results`" in refused(
        lambda: refuse_unwritable(Path("results"))
    )


def test_a_copy_of_code_that_nobody_writes_and_dangling_links_are_no_obstacle(project):
    run_as(FIRST, results, GROUP, umask=0o002)
    Path("results/grp/a/config.json").chmod(0o444)
    Path("results/grp/a/link").symlink_to("nowhere")
    run_as(SECOND, lambda: refuse_unwritable(Path("results")), GROUP)


@pytest.mark.parametrize("path", ["data/digits/new.json", "data/digits/new/deep.json"])
@pytest.mark.parametrize("write", [
    lambda path: atomic_write(path).__enter__(),
    lambda path: exclusive_lock(path, "converting").__enter__(),
    lambda path: Lease(path).acquire(False, lambda: False),
], ids=["file", "lock", "lease"])  # fmt: skip
def test_what_cannot_be_written_is_named_with_its_owner(project, path, write):
    """A store in data/ that two users share, the lease of a folder of the other."""
    run_as(FIRST, results, GROUP)
    before = contents()
    said = refused(lambda: write(Path(path)))
    assert said.startswith("cannot write data/digits/")
    assert (
        f"data/digits belongs to user {FIRST}, and you cannot write there; ask for `chmod -R g+w data/digits`"
        in said
    )
    assert contents() == before


def test_a_command_that_finds_an_unreadable_file_ends_with_a_sentence(project, capfd):
    run_as(FIRST, results, GROUP, umask=0o077)
    command = exit_on_user_error(lambda: int(Path("data/digits/.lock").read_text()))
    assert run_as(SECOND, command, GROUP) == 2
    said = capfd.readouterr().err
    assert said.startswith("nnlo: error: data/digits/.lock: data belongs to user")
    assert "Traceback" not in said
