"""Locks beside other users, who can prepare the file of a lock."""

import errno
import fcntl
import os

import pytest
from helpers.other_users import ATTACKER, VICTIM, run_as, shared_place

from nnlo_lib.core.errors import UserError
from nnlo_lib.core.file_lock import exclusive_lock

__all__ = ["shared_place"]


def work_with_lock(path):
    with exclusive_lock(path, "working"):
        return path.read_bytes()


@pytest.mark.parametrize("prepare", [os.mkfifo, os.mkdir], ids=["pipe", "folder"])
def test_the_message_names_a_special_file_without_waiting_for_it(tmp_path, prepare):
    prepare(tmp_path / "lock")
    with pytest.raises(UserError, match=str(tmp_path / "lock")):
        work_with_lock(tmp_path / "lock")


@pytest.mark.parametrize("exists", [True, False])
def test_a_link_is_not_followed(tmp_path, exists):
    target, lock = tmp_path / "diary", tmp_path / "lock"
    if exists:
        target.touch()
    lock.symlink_to(target)
    with pytest.raises(UserError, match=f"{lock} is not a regular file"):
        work_with_lock(lock)
    # An empty file of a lock is removed afterwards.
    assert (lock.is_symlink(), target.exists()) == (True, exists)


def test_content_is_kept(tmp_path):
    (tmp_path / "part").write_bytes(b"half")
    assert work_with_lock(tmp_path / "part") == b"half"
    assert (tmp_path / "part").read_bytes() == b"half"


@pytest.mark.processes
def test_a_lock_of_another_user_in_a_public_folder_is_refused(shared_place):
    def prepare():
        os.umask(0)
        (shared_place / "lock").touch()

    run_as(ATTACKER, prepare)
    message = f"UntrustedPathError: {shared_place}/lock belongs to user {ATTACKER}"
    with pytest.raises(AssertionError, match=message):
        run_as(VICTIM, lambda: work_with_lock(shared_place / "lock"))
    assert (shared_place / "lock").stat().st_uid == ATTACKER


@pytest.mark.processes
def test_a_second_name_of_a_file_in_a_public_folder_is_refused(shared_place):
    run_as(VICTIM, (shared_place / "diary").touch)
    # By root, because the kernel can forbid other users to do so (fs.protected_hardlinks).
    os.link(shared_place / "diary", shared_place / "lock")
    with pytest.raises(AssertionError, match=r"UntrustedPathError: .*has a second name"):
        run_as(VICTIM, lambda: work_with_lock(shared_place / "lock"))


@pytest.mark.processes
def test_members_of_a_group_share_a_lock(shared_place):
    folder = shared_place / "project"
    folder.mkdir()
    os.chown(folder, VICTIM, VICTIM)
    folder.chmod(0o2770)
    # A lock that a killed process of a colleague left behind.
    (folder / "lock").touch()
    (folder / "lock").chmod(0o660)
    os.chown(folder / "lock", ATTACKER, VICTIM)
    assert run_as(VICTIM, lambda: work_with_lock(folder / "lock")) == b""
    assert not (folder / "lock").exists()


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_is_a_sentence(tmp_path, monkeypatch, number):
    def flock(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", flock)
    with (
        pytest.raises(UserError, match="the file system of this folder has no file locks"),
        exclusive_lock(tmp_path / "x", "working"),
    ):
        pass
