"""Copies of a store on the disk of a node: made once, checked, repaired, and private beside other users."""

import fcntl
import hashlib
import os
import shutil
from collections import namedtuple
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from helpers.other_users import ATTACKER, VICTIM, run_as, shared_place
from helpers.synthetic_store import handmade

from nnlo_lib.core.errors import UserError
from nnlo_lib.data.store import shard_copy
from nnlo_lib.data.store.split import Split
from nnlo_lib.data.store.staging import StagingJob, stage_dataset


@pytest.fixture
def node(tmp_path, monkeypatch):
    """Return a node-local folder; an environment variable names it."""
    (tmp_path / "node").mkdir()
    monkeypatch.setenv("NODE_DISK", str(tmp_path / "node"))
    return tmp_path / "node"


@pytest.fixture
def copied(monkeypatch):
    """Names of the shards that were copied."""
    found, original = [], shutil.copyfile

    def copy(source, target):
        found.append(source.name)
        original(source, target)

    monkeypatch.setattr(shard_copy.shutil, "copyfile", copy)
    return found


def number_of_shards(store):
    return sum(len(part.shards) for part in store.splits.values())


def test_the_copy_is_read_like_the_original(digits, node):
    copy = stage_dataset(digits, "$NODE_DISK")
    assert node in copy.folder.parents
    assert replace(copy, folder=digits.folder, staged=False) == digits
    copy.verify()
    (ours,), labels = Split(copy, "train").take(np.arange(1442))
    (theirs,), expected = Split(digits, "train").take(np.arange(1442))
    assert np.array_equal(ours, theirs)
    assert np.array_equal(labels, expected)


def test_only_shards_that_are_missing_or_cut_are_copied_again(digits, node, copied):
    job = StagingJob("a job that compares the checksums once")
    folder = stage_dataset(digits, "$NODE_DISK", job=job).folder
    lost = digits.splits["train"].shards[1].file
    (folder / lost).write_bytes(b"half")
    copied.clear()
    stage_dataset(digits, "${NODE_DISK}", job=job).verify()
    assert copied == [lost]


def test_a_damaged_copy_is_named_with_the_command_that_removes_it(digits, node):
    copy = stage_dataset(digits, "$NODE_DISK")
    path = copy.folder / digits.splits["train"].shards[0].file
    path.write_bytes(bytes(path.stat().st_size))
    message = rf"{path} is unreadable \(.*\); remove this staged copy and run again: rm -f {path}"
    with pytest.raises(UserError, match=message):
        Split(copy, "train")
    path.unlink()
    Split(stage_dataset(digits, "$NODE_DISK"), "train")


def test_a_copy_of_an_earlier_job_is_checked_once_and_mended(digits, node, capsys):
    folder = stage_dataset(digits, "$NODE_DISK", job=StagingJob("first")).folder
    path = folder / digits.splits["train"].shards[0].file
    content = path.read_bytes()
    path.write_bytes(bytes(len(content)))
    capsys.readouterr()
    for job in (StagingJob("second"), StagingJob("second", False), StagingJob("first")):
        stage_dataset(digits, "$NODE_DISK", job=job)
    message = capsys.readouterr().err
    assert message.count("compared the checksums") == 1
    assert f"compared the checksums of {number_of_shards(digits)} shards in {folder}" in message
    assert f"{path} differs from the data set; copying it again" in message
    assert path.read_bytes() == content


def test_another_conversion_has_another_folder(digits, node, tmp_path):
    shutil.copytree(digits.folder, other := tmp_path / "other")
    (other / "manifest.json").write_text((other / "manifest.json").read_text() + "\n")
    found = {
        stage_dataset(replace(digits, folder=each), "$NODE_DISK").folder for each in (other, digits.folder)
    }
    assert len(found) == 2


def test_too_little_space_is_an_error_before_anything_is_copied(digits, node, monkeypatch):
    usage = namedtuple("Usage", "total used free")(10**6, 0, 100_000)
    monkeypatch.setattr(shard_copy.shutil, "disk_usage", lambda path: usage)
    with pytest.raises(UserError, match=r"data\.stage_to: .* has 100 kB free, but the copy needs"):
        stage_dataset(digits, "$NODE_DISK")
    assert not list(node.rglob("*.h5")) + list(node.rglob("*.npz"))


def test_a_damaged_original_is_not_copied(digits, node, tmp_path):
    shutil.copytree(digits.folder, broken := tmp_path / "broken")
    shard = digits.splits["train"].shards[0]
    content = bytearray((broken / shard.file).read_bytes())
    content[-1] ^= 1
    (broken / shard.file).write_bytes(content)
    with pytest.raises(UserError, match=rf"{shard.file} is unreadable \(the checksum differs"):
        stage_dataset(replace(digits, folder=broken), "$NODE_DISK")
    assert not [path for path in node.rglob("*") if path.suffix in (".h5", ".npz", ".part")]


@pytest.mark.parametrize(
    ("folder", "message"),
    [
        ("$NO_SUCH_DISK/x", "environment variable NO_SUCH_DISK is not set"),
        ("$EMPTY", "environment variable EMPTY is not set"),
        ("/no/such", "folder /no/such does not exist"),
    ],
)
def test_a_missing_folder_is_named_and_an_empty_variable_is_not_the_working_directory(
    digits, folder, message, monkeypatch, tmp_path
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EMPTY", "")
    with pytest.raises(UserError, match=rf"data\.stage_to: {message}"):
        stage_dataset(digits, folder)
    assert not list(tmp_path.iterdir())


def test_a_process_that_holds_the_lock_too_long_is_an_error(digits, node):
    folder = stage_dataset(digits, "$NODE_DISK").folder
    with (folder / ".lock").open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(UserError, match=rf"another process is copying a data set to {folder}; wait"):
            stage_dataset(digits, "$NODE_DISK", patience=0.1)


def test_of_all_processes_on_a_node_one_copies(digits, node, copied):
    """Threads open the file of the lock as processes do."""
    with ThreadPoolExecutor(3) as pool:
        jobs = [pool.submit(stage_dataset, digits, "$NODE_DISK") for _ in range(3)]
        for job in jobs:
            job.result().verify()
    assert len(copied) == number_of_shards(digits)


def test_a_killed_copy_is_continued(digits, node, copied):
    """As a process leaves it that is killed before the rename of the second shard."""
    folder = stage_dataset(digits, "$NODE_DISK").folder
    for name in copied[1:]:
        (folder / name).unlink()
    (folder / f".{copied[1]}.0123.part").write_bytes(b"half")
    (folder / ".lock").touch()
    missing = copied[1:]
    copied.clear()
    stage_dataset(digits, "$NODE_DISK").verify()
    assert copied == missing
    shards = {shard.file for part in digits.splits.values() for shard in part.shards}
    assert {path.name for path in folder.iterdir()} == shards


__all__ = ["shared_place"]
ME = 0  # the tests run as root


# Beside other users of the node; what makes a folder private: tests/core.
@pytest.fixture
def store(shared_place):
    """Return a store that every user can read, and only root can write."""
    splits = {"train": (np.arange(60.0).reshape(20, 3), np.arange(20) % 2)}
    made = handmade(shared_place.parent / "store", splits, shard=5)
    # The other users cannot import modules if Python is in root's home: imports the modules that read shards.
    Split(made, "train")
    return made


def false_copy(store, top):
    """Write all shards with other values, as another user."""
    key = hashlib.sha256((store.folder / "manifest.json").read_bytes()).hexdigest()[:16]
    handmade(top / f"{store.dataset}-{key}", {"train": (np.zeros((20, 3)), np.zeros(20, np.int64))}, shard=5)


ATTACKS = {
    "copy": false_copy,
    "link": lambda store, top: top.symlink_to(store.folder),
    "file": lambda store, top: top.write_text("no folder"),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_folder_that_another_user_prepared_is_not_used(store, shared_place, attack, capfd):
    top = shared_place / f"nnlo-{ME}"
    ATTACKS[attack](store, top)
    os.chown(top, ATTACKER, ATTACKER, follow_symlinks=False)
    copy = stage_dataset(store, str(shared_place))
    assert copy.folder == store.folder
    assert Split(copy, "train").labels.any()
    message = capfd.readouterr().err
    assert str(top) in message
    assert f"user {ATTACKER}" in message


@pytest.mark.processes
def test_users_have_copies_in_one_place_that_the_others_cannot_read(store, shared_place):
    def stage():
        os.umask(0)
        copy = stage_dataset(store, str(shared_place))
        copy.verify()
        return copy.folder, copy.staged

    (first, is_staged), (second, is_second_staged) = (run_as(user, stage) for user in (VICTIM, ATTACKER))
    assert is_staged
    assert is_second_staged
    assert first != second
    shard = first / store.splits["train"].shards[0].file
    with pytest.raises(AssertionError, match="PermissionError"):
        run_as(ATTACKER, shard.read_bytes)
