import fcntl
import os
import shutil
import subprocess
import sys
import textwrap
from collections import namedtuple
from dataclasses import replace

import numpy as np
import pytest

from nnlo_lib.core.errors import UserError
from nnlo_lib.data.staging import shard_copy
from nnlo_lib.data.staging.copy_check import CHECKED_FILE, MAX_RECORDED_JOBS, record_check
from nnlo_lib.data.staging.staged_dataset import StagingJob, stage_dataset
from nnlo_lib.data.store.split import Split

Usage = namedtuple("Usage", "total used free")


@pytest.fixture
def node(tmp_path, monkeypatch):
    """Return a node-local folder; an environment variable names it."""
    (tmp_path / "node").mkdir()
    monkeypatch.setenv("NODE_DISK", str(tmp_path / "node"))
    return tmp_path / "node"


def test_the_copy_is_read_like_the_original(digits, node):
    copy = stage_dataset(digits, "$NODE_DISK")
    assert node in copy.folder.parents
    assert replace(copy, folder=digits.folder, staged=False) == digits
    copy.verify()
    (ours,), labels = Split(copy, "train").take(np.arange(1442))
    (theirs,), expected = Split(digits, "train").take(np.arange(1442))
    assert np.array_equal(ours, theirs)
    assert np.array_equal(labels, expected)


def test_what_is_there_is_not_copied_again(digits, node, monkeypatch):
    folder = stage_dataset(digits, "$NODE_DISK").folder
    lost = folder / digits.splits["train"].shards[1].file
    lost.write_bytes(b"half")
    copied = []
    original = shard_copy._copy
    monkeypatch.setattr(
        shard_copy,
        "_copy",
        lambda manifest, shard, path: (copied.append(path), original(manifest, shard, path)),
    )
    stage_dataset(digits, "${NODE_DISK}").verify()
    assert copied == [lost]


def test_a_damaged_copy_says_how_to_get_another(digits, node):
    copy = stage_dataset(digits, "$NODE_DISK")
    path = copy.folder / digits.splits["train"].shards[0].file
    path.write_bytes(bytes(path.stat().st_size))
    with pytest.raises(
        UserError, match=rf"{path} is unreadable \(.*\); remove this staged copy and run again: rm -f {path}"
    ):
        Split(copy, "train")
    path.unlink()
    Split(stage_dataset(digits, "$NODE_DISK"), "train")


def shard_sizes(digits):
    return sum(len(part.shards) for part in digits.splits.values())


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
    assert f"compared the checksums of {shard_sizes(digits)} shards in {folder}" in message
    assert f"{path} differs from the data set; copying it again" in message
    assert path.read_bytes() == content


def test_the_names_of_old_jobs_are_forgotten(digits, node):
    for number in range(MAX_RECORDED_JOBS + 2):
        record_check(node, str(number))
    assert (node / CHECKED_FILE).read_text().split() == [
        str(number) for number in range(2, MAX_RECORDED_JOBS + 2)
    ]


def test_another_conversion_has_another_folder(digits, node, tmp_path):
    other = tmp_path / "other"
    shutil.copytree(digits.folder, other)
    (other / "manifest.json").write_text((other / "manifest.json").read_text() + "\n")
    assert (
        stage_dataset(replace(digits, folder=other), "$NODE_DISK").folder
        != stage_dataset(digits, "$NODE_DISK").folder
    )


def test_too_little_room_is_said_before_anything_is_copied(digits, node, monkeypatch):
    monkeypatch.setattr(shard_copy.shutil, "disk_usage", lambda path: Usage(10**6, 0, 100_000))
    with pytest.raises(UserError, match=r"data\.stage_to: .* has 0\.00 GB free, but the copy needs"):
        stage_dataset(digits, "$NODE_DISK")
    assert not list(node.rglob("*.h5")) + list(node.rglob("*.npz"))


def test_a_damaged_original_is_not_passed_on(digits, node, tmp_path):
    broken = tmp_path / "broken"
    shutil.copytree(digits.folder, broken)
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
        ("/no/such", "folder /no/such does not exist"),
    ],
)
def test_a_folder_that_is_not_there(digits, folder, message):
    with pytest.raises(UserError, match=rf"data\.stage_to: {message}"):
        stage_dataset(digits, folder)


def test_an_empty_variable_is_not_the_current_folder(digits, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NODE_DISK", "")
    with pytest.raises(UserError, match=r"data\.stage_to: environment variable NODE_DISK is not set"):
        stage_dataset(digits, "$NODE_DISK")
    assert not list(tmp_path.iterdir())


def test_a_holder_that_never_ends_is_named(digits, node):
    folder = stage_dataset(digits, "$NODE_DISK").folder
    with (folder / ".lock").open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        other.write("4711")
        other.flush()
        with pytest.raises(UserError, match=r"process 4711 has been copying to .* for more than 0\.1 s"):
            stage_dataset(digits, "$NODE_DISK", patience=0.1)


PROGRAM = """
    import os, sys
    from contextlib import contextmanager
    from pathlib import Path
    from nnlo_lib.data.staging import shard_copy, staged_dataset
    from nnlo_lib.data.store.manifest import DataManifest
    original, replacing, copied = shard_copy._copy, shard_copy.atomic_write, []
    @contextmanager
    def torn(path):
        with replacing(path) as part:
            yield part
            os._exit(9)
    def copy(manifest, shard, path):
        copied.append(path)
        original(manifest, shard, path)
        if sys.argv[2] == "die":
            os._exit(9)
    shard_copy._copy = copy
    if sys.argv[2] == "die before the name":
        shard_copy.atomic_write = torn
    staged_dataset.stage_dataset(DataManifest.load(Path(sys.argv[1])), "$NODE_DISK").verify()
    print(len(copied))
"""


def start(digits, how):
    command = [sys.executable, "-c", textwrap.dedent(PROGRAM), str(digits.folder), how]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ)


@pytest.mark.processes
def test_of_all_processes_on_a_node_one_copies(digits, node):
    done = [process.communicate(timeout=200)[0] for process in [start(digits, "live") for _ in range(3)]]
    shards = sum(len(part.shards) for part in digits.splits.values())
    assert sorted(map(int, done)) == [0, 0, shards]


@pytest.mark.processes
def test_a_killed_copy_is_gone_on_with(digits, node):
    assert start(digits, "die").wait(timeout=200) == 9
    process = start(digits, "live")
    shards = sum(len(part.shards) for part in digits.splits.values())
    assert int(process.communicate(timeout=200)[0]) == shards - 1


@pytest.mark.processes
def test_what_a_killed_copy_left_is_cleared_away(digits, node):
    assert start(digits, "die before the name").wait(timeout=200) == 9
    assert [path.suffix for path in node.rglob("*.part")] == [".part"]
    folder = stage_dataset(digits, "$NODE_DISK").folder
    shards = {shard.file for part in digits.splits.values() for shard in part.shards}
    assert {path.name for path in folder.iterdir()} == shards | {".lock"}
