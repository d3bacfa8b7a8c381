"""Staged copies beside other users of a node, who can prepare files under every name that NNLO uses."""

import hashlib
import os
import shutil
import socket
from dataclasses import replace

import numpy as np
import pytest
from helpers.other_users import ATTACKER, VICTIM, run_as, shared_place

from nnlo_lib.data.staging.staged_dataset import stage_dataset
from nnlo_lib.data.store.shard import map_shard, write_shard
from nnlo_lib.data.store.split import Split

__all__ = ["shared_place"]

pytestmark = [pytest.mark.processes, pytest.mark.timeout(60)]


@pytest.fixture
def store(digits, shared_place):
    """Return a store that every user can read, and no user can write."""
    folder = shared_place.parent / "store"
    shutil.copytree(digits.folder, folder)
    folder.chmod(0o755)
    copy = replace(digits, folder=folder)
    # The other users cannot import modules if Python is in root's home: imports the modules that read shards.
    Split(copy, "train")
    return copy


@pytest.fixture
def diary(shared_place):
    """Return a file of the victim that NNLO never uses."""
    path = shared_place.parent / "diary"
    path.write_text("dear diary")
    path.chmod(0o644)
    os.chown(path, VICTIM, VICTIM)
    return path


def names(store, place):
    """Return all folders in which this version, and an earlier version, looks for the copy."""
    key = hashlib.sha256((store.folder / "manifest.json").read_bytes()).hexdigest()[:16]
    return [place / f"nnlo-{VICTIM}" / f"{store.dataset}-{key}", place / f"nnlo-{store.dataset}-{key}"]


def staged_labels(store, place):
    copy = stage_dataset(store, str(place))
    return copy.folder, Split(copy, "train").labels


def write_false_shards(store, folder):
    """Write shards of the right names and sizes, in which all labels are 0."""
    columns = [*store.inputs, store.labels]
    folder.mkdir(parents=True, exist_ok=True)
    for shard in store.splits["train"].shards:
        arrays = dict(
            zip(
                [each.name for each in columns],
                map_shard(store.path(shard), [each.name for each in columns]),
                strict=True,
            )
        )
        arrays[store.labels.name] = np.zeros_like(arrays[store.labels.name])
        write_shard(folder / shard.file, store.format, arrays)
        assert (folder / shard.file).stat().st_size == shard.bytes


def false_copy(store, folder, diary):
    write_false_shards(store, folder)


def lock_is_link(store, folder, diary):
    folder.mkdir(parents=True)
    (folder / ".lock").symlink_to(diary)


def lock_is_fifo(store, folder, diary):
    folder.mkdir(parents=True)
    os.mkfifo(folder / ".lock", 0o666)
    (folder / ".lock").chmod(0o666)


def lock_is_socket(store, folder, diary):
    folder.mkdir(parents=True)
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(str(folder / ".lock"))


def folder_is_link(store, folder, diary):
    top = folder if folder.name.startswith("nnlo-") else folder.parent
    top.symlink_to(diary.parent / "store")


def folder_is_file(store, folder, diary):
    top = folder if folder.name.startswith("nnlo-") else folder.parent
    top.write_text("no folder")


ATTACKS = [false_copy, lock_is_link, lock_is_fifo, lock_is_socket, folder_is_link, folder_is_file]


@pytest.mark.parametrize("attack", ATTACKS)
def test_what_another_user_prepared_is_neither_read_nor_harmed(store, shared_place, diary, attack, capfd):
    def prepare():
        os.umask(0)
        for folder in names(store, shared_place):
            attack(store, folder, diary)

    run_as(ATTACKER, prepare)
    folder, labels = run_as(VICTIM, lambda: staged_labels(store, shared_place))
    assert np.array_equal(labels, Split(store, "train").labels)
    assert diary.read_text() == "dear diary"
    assert folder == store.folder
    message = capfd.readouterr().err
    assert f"{shared_place}/nnlo-{VICTIM}" in message
    assert f"uid {ATTACKER}" in message


def test_an_old_copy_that_every_user_could_write_is_not_read(store, shared_place, capfd):
    def prepare():
        os.umask(0)
        names(store, shared_place)[0].parent.mkdir(mode=0o777)

    run_as(VICTIM, prepare)
    run_as(ATTACKER, lambda: write_false_shards(store, names(store, shared_place)[0]))
    folder, labels = run_as(VICTIM, lambda: staged_labels(store, shared_place))
    assert np.array_equal(labels, Split(store, "train").labels)
    assert folder == store.folder
    assert "mode 777" in capfd.readouterr().err


def test_a_place_in_which_every_user_can_rename_folders_is_not_used(store, shared_place, capfd):
    shared_place.chmod(0o777)
    folder, _ = run_as(VICTIM, lambda: staged_labels(store, shared_place))
    assert folder == store.folder
    assert not list(shared_place.iterdir())
    assert f"chmod +t {shared_place}" in capfd.readouterr().err


@pytest.mark.parametrize("kind", ["folder", "link"])
def test_a_place_that_another_user_made_is_not_used(store, shared_place, kind, capfd):
    place = shared_place / "data"

    def prepare():
        os.umask(0)
        if kind == "folder":
            place.mkdir()
            place.chmod(0o1777)
        else:
            place.symlink_to(shared_place)

    run_as(ATTACKER, prepare)
    folder, _ = run_as(VICTIM, lambda: staged_labels(store, place))
    assert folder == store.folder
    assert f"uid {ATTACKER}" in capfd.readouterr().err


def test_other_users_cannot_read_a_copy(store, shared_place):
    def stage():
        os.umask(0)
        return stage_dataset(store, str(shared_place)).folder

    folder = run_as(VICTIM, stage)
    assert folder != store.folder
    shard = folder / store.splits["train"].shards[0].file
    with pytest.raises(AssertionError, match="PermissionError"):
        run_as(ATTACKER, shard.read_bytes)
    top = next(path for path in [folder, *folder.parents] if path.parent == shared_place)
    assert top.stat().st_mode & 0o777 == 0o700


def test_two_users_have_copies_in_one_place(store, shared_place):
    def stage():
        copy = stage_dataset(store, str(shared_place))
        copy.verify()
        return copy.folder, copy.staged

    (first, is_staged), (second, is_second_staged) = (run_as(user, stage) for user in (VICTIM, ATTACKER))
    assert is_staged
    assert is_second_staged
    assert first != second
