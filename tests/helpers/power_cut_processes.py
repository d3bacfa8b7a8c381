"""Power cuts of trainings of several processes: each process reports its writes to one recorder before it makes them.

A process that reports waits until the recorder has read the disk, so the order of all events is known. Other processes go
on meanwhile: what they have written when the disk is read is as unsafe as in a real power cut.
"""

import json
import os
import socketserver
import tempfile
from pathlib import Path
from threading import Thread
from typing import Any

from helpers.power_cut import EVENTS, PowerCutRecorder

SOCKET, FOLDER = "NNLO_TEST_POWER_CUT_SOCKET", "NNLO_TEST_POWER_CUT_FOLDER"
# Runs in every Python process of which PYTHONPATH names the folder.
CUSTOMIZE = """
import json, os, socket, stat, sys, threading

ADDRESS, FOLDER = os.environ.get({socket!r}), os.environ.get({folder!r})
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
EVENTS = {events!r}
local, real_fsync = threading.local(), os.fsync


def tell(**event):
    # A connection per thread and process.
    if getattr(local, "process", None) != os.getpid():
        local.process, connection = os.getpid(), socket.socket(socket.AF_UNIX)
        connection.connect(ADDRESS)
        local.stream = connection.makefile("rw")
    local.stream.write(json.dumps(event) + "\\n")
    local.stream.flush()
    local.stream.readline()


def is_inside(path):
    # A number is an open file, which may be inside; so may a path relative to an open folder.
    return isinstance(path, int) or not os.path.isabs(path) or os.fsdecode(path).startswith(FOLDER)


def hook(event, arguments):
    if event not in EVENTS:
        return
    if event == "open" and (isinstance(arguments[0], int) or not int(arguments[2]) & WRITING):
        return
    if any(is_inside(path) for path in arguments[: 2 if event in ("os.rename", "os.link") else 1]):
        tell(event=event)


def fsync(handle):
    number = handle if isinstance(handle, int) else handle.fileno()
    inode = os.fstat(number).st_ino
    tell(event="fsync", inode=inode)
    real_fsync(handle)
    tell(event="flushed", inode=inode)


if ADDRESS:
    sys.addaudithook(hook)
    os.fsync = fsync
"""


class ProcessRecorder(PowerCutRecorder):
    """Context manager that records the writes of all processes with its `environment`."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._place = tempfile.TemporaryDirectory(prefix="nnlo-cut-")
        self._pending: dict[tuple[int, int], Any] = {}
        self.processes: set[int] = set()

    @property
    def environment(self) -> dict[str, str]:
        """Variables of the processes that are recorded."""
        place = self._place.name
        return {SOCKET: f"{place}/socket", FOLDER: str(self._folder), "PYTHONPATH": place}

    def __enter__(self) -> "ProcessRecorder":
        text = CUSTOMIZE.format(socket=SOCKET, folder=FOLDER, events=sorted(EVENTS))
        Path(self._place.name, "sitecustomize.py").write_text(text)
        recorder = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                for line in self.rfile:
                    recorder._receive(id(self), json.loads(line))
                    self.wfile.write(b"\n")

        class Server(socketserver.ThreadingUnixStreamServer):
            daemon_threads = True

        self._server = Server(f"{self._place.name}/socket", Handler)
        Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self.record("end")
        for handle in self._handles.values():
            os.close(handle)
        self._place.cleanup()

    def _receive(self, sender: int, event: dict[str, Any]) -> None:
        with self._lock:
            self.processes.add(sender)
            if event["event"] == "flushed":
                self._keep(event["inode"], self._pending.pop((sender, event["inode"])))
                return
            self.record(event["event"])
            if event["event"] == "fsync":
                # What is written after the start of the flush may be lost.
                self._pending[sender, event["inode"]] = self._read()
