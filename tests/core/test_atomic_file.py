"""Atomic writes of files: complete content or no file, errors and permissions."""

import errno
import json
import math
import os
import stat

import pytest

from nnlo_lib.core.atomic_file import CHECKSUM_KEY, atomic_write, content_checksum, with_checksum
from nnlo_lib.core.errors import UserError


def test_the_name_appears_only_at_the_end(tmp_path):
    path = tmp_path / "deep" / "file"
    with atomic_write(path) as part:
        part.write_text("new")
        assert not path.exists()
    assert path.read_text() == "new"
    assert list(path.parent.iterdir()) == [path]


def test_an_error_keeps_the_old_file(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")
    with pytest.raises(TypeError), atomic_write(path) as part:
        part.write_text(b"new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("refusing", [False, True], ids=["", "a file system without flushes of folders"])
def test_content_reaches_the_disk_before_the_name_does(tmp_path, monkeypatch, refusing):
    flushed = []

    def fsync(handle):
        is_folder = stat.S_ISDIR(os.fstat(handle).st_mode)
        flushed.append((is_folder, (tmp_path / "file").exists()))
        if refusing and is_folder:
            raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr(os, "fsync", fsync)
    with atomic_write(tmp_path / "file") as part:
        part.write_text("content")
    assert flushed == [(False, False), (True, True)]  # the file before its name exists, then the folder
    assert (tmp_path / "file").read_text() == "content"


def test_the_message_names_a_file_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("not a folder")
    with (
        pytest.raises(UserError, match=r"cannot write .*file/below"),
        atomic_write(tmp_path / "file" / "below"),
    ):
        pass


def test_the_umask_sets_the_permissions(tmp_path):
    old = os.umask(0o027)
    try:
        with atomic_write(tmp_path / "file"):
            pass
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o640


def test_json_has_no_nan():
    """JSON has no NaN: jq, JavaScript and R refuse a file with one. The checksum is that of what is read."""
    content = {"loss": math.nan, "final": {"a": [1.5, -math.inf, None]}, "pair": (math.inf, 2), "name": "NaN"}
    text = json.dumps(with_checksum(content), allow_nan=False)
    read = json.loads(text)
    assert read.pop(CHECKSUM_KEY) == content_checksum(read)
    assert read == {"loss": None, "final": {"a": [1.5, None, None]}, "pair": [None, 2], "name": "NaN"}
