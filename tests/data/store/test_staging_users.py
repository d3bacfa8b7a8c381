"""Staged copies beside other users of a node; what makes a folder private: tests/core."""

import hashlib
import os

import numpy as np
import pytest
from helpers.other_users import ATTACKER, VICTIM, run_as, shared_place
from helpers.synthetic_store import handmade

from nnlo_lib.data.store.split import Split
from nnlo_lib.data.store.staging import stage_dataset

__all__ = ["shared_place"]
ME = 0  # the tests run as root


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
    assert f"uid {ATTACKER}" in message


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
