"""Waiting until the reader of a pipe has read."""

import os
import threading

from nnlo_lib.core.process import wait_until_read


def test_it_waits_until_the_pipe_is_empty():
    reading, writing = os.pipe()
    with os.fdopen(writing, "w") as stream, os.fdopen(reading, "rb", buffering=0) as reader:
        stream.write("a sentence")
        got = []
        thread = threading.Timer(0.1, lambda: got.append(reader.read(100)))
        thread.start()
        wait_until_read(stream, 3600)
        thread.join()
        assert got == [b"a sentence"]


def test_it_does_not_wait_longer_than_its_limit_or_for_files(tmp_path):
    reading, writing = os.pipe()
    with os.fdopen(writing, "w") as stream:
        stream.write("unread")
        wait_until_read(stream, 0.05)
    os.close(reading)
    with (tmp_path / "file").open("w") as stream:
        wait_until_read(stream, 3600)
