"""A disk that loses power: what a program has written in a folder, and what a power cut at each moment leaves.

The model is that of ALICE (Pillai et al., OSDI 2014): only flushed content of files and flushed names of folders are sure to
survive. Of everything else, all, nothing, a part, or zeros may be on the disk.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import RLock

EVENTS = {"open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "os.link"}
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
KINDS = ("killed", "flushed only", "names only", "zeros", "torn")
Tree = dict[int, dict[str, int]]  # inodes by name, by inode of the folder
Contents = dict[int, bytes]  # by inode of the file


@dataclass(frozen=True)
class CrashState:
    """The files that a power cut leaves."""

    moment: int  # number of the event before which the power fails
    event: str
    kind: str  # one of KINDS
    files: dict[str, bytes | None]  # content by path; None for a folder

    def write(self, folder: Path) -> None:
        """Write the files to an empty folder."""
        for name, content in sorted(self.files.items()):
            path = folder / name
            if content is None:
                path.mkdir(parents=True, exist_ok=True)
            else:
                path.write_bytes(content)


@dataclass
class Disk:
    """Names and contents of files below a folder."""

    root: int
    names: Tree = field(default_factory=dict)
    contents: Contents = field(default_factory=dict)
    paths: dict[int, Path] = field(default_factory=dict)

    @classmethod
    def read(cls, folder: Path) -> "Disk":
        """Read a folder at one moment: again, until another thread has changed nothing in the meantime."""
        disk = cls._walk(folder)
        while disk != (again := cls._walk(folder)):
            disk = again
        return disk

    @classmethod
    def _walk(cls, folder: Path) -> "Disk":
        disk = cls(folder.stat().st_ino)
        for place, folders, files in os.walk(folder):
            here: dict[str, int] = {}
            # A thread that writes a checkpoint may rename or remove a folder or a file at the same time.
            with suppress(FileNotFoundError):
                disk.names[Path(place).stat().st_ino] = here
            for name in (*folders, *files):
                with suppress(FileNotFoundError):
                    path = Path(place, name)
                    here[name] = path.stat().st_ino
                    disk.paths[here[name]] = path
                    if name in files:
                        disk.contents[here[name]] = path.read_bytes()
        return disk

    def files(self, contents: Contents) -> dict[str, bytes | None]:
        """Return the files with other contents; an unknown inode is an empty file."""
        return dict(self._below(self.root, "", contents))

    def _below(self, inode: int, place: str, contents: Contents) -> Iterator[tuple[str, bytes | None]]:
        for name, number in self.names.get(inode, {}).items():
            if number in self.names:
                yield f"{place}{name}", None
                yield from self._below(number, f"{place}{name}/", contents)
            else:
                yield f"{place}{name}", contents.get(number, b"")


class PowerCutRecorder:
    """Context manager that records, at each change of a folder, the states that a power cut may leave."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._handles: dict[int, int] = {}
        self._flushed = self._read()
        self._lock, self._seen = RLock(), set[int]()
        self.moments = 0
        self.states: list[CrashState] = []

    def __enter__(self) -> "PowerCutRecorder":
        self._fsync, os.fsync = os.fsync, self._record_fsync
        _active.append(self)
        return self

    def __exit__(self, *error: object) -> None:
        _active.remove(self)
        os.fsync = self._fsync
        self.record("end")
        for handle in self._handles.values():
            os.close(handle)

    def record(self, event: str) -> None:
        """Record the states that a power cut at this moment may leave, if they are new."""
        with self._lock:
            now = self._read()
            self.moments += 1
            for kind, files in self._states(now):
                identity = hash(frozenset(files.items()))
                if identity not in self._seen:
                    self._seen.add(identity)
                    self.states.append(CrashState(self.moments, event, kind, files))

    def _read(self) -> Disk:
        now = Disk.read(self._folder)
        for inode, path in now.paths.items():
            # An open file keeps its inode, so that no later file gets the number.
            if inode not in self._handles:
                with suppress(OSError):
                    self._handles[inode] = os.open(path, os.O_RDONLY)
        return now

    def _states(self, now: Disk) -> Iterator[tuple[str, dict[str, bytes | None]]]:
        flushed = self._flushed.contents
        yield "killed", now.files(now.contents)
        yield "flushed only", self._flushed.files(flushed)
        yield "names only", now.files(flushed)
        for kind in ("zeros", "torn"):
            changed = {
                number: _damaged(content, flushed.get(number, b""), kind)
                for number, content in now.contents.items()
            }
            yield kind, now.files(changed)

    def _record_fsync(self, handle: int) -> None:
        self.record("fsync")
        self._fsync(handle)
        with self._lock:
            self._keep(os.fstat(handle).st_ino, self._read())

    def _keep(self, inode: int, now: Disk) -> None:
        """Take over a file or the names of a folder from a disk: they are flushed."""
        if inode in now.names:
            self._flushed.names[inode] = now.names[inode]
            # A flushed name of a folder is a folder, even if its own names are not flushed.
            for number in now.names[inode].values():
                if number in now.names:
                    self._flushed.names.setdefault(number, {})
        elif inode in now.contents:
            self._flushed.contents[inode] = now.contents[inode]


def _damaged(content: bytes, flushed: bytes, kind: str) -> bytes:
    """Return content of which everything behind the flushed beginning is zeros or torn."""
    both = min(len(content), len(flushed))
    safe = next((place for place in range(both) if content[place] != flushed[place]), both)
    if kind == "zeros":
        return content[:safe] + bytes(len(content) - safe)
    return content[: safe + (len(content) - safe) // 2]


_active: list[PowerCutRecorder] = []


def _hook(event: str, arguments: tuple[object, ...]) -> None:
    """Record before an event; a hook cannot be removed, so it does nothing without an active recorder."""
    # The flags of a reader, such as the recorder, do not change the folder.
    if _active and event in EVENTS and (event != "open" or int(str(arguments[2])) & WRITING):
        for recorder in _active:
            recorder.record(event)


sys.addaudithook(_hook)
