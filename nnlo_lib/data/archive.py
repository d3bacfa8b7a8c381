"""Archives: told by their name, and extracted without trusting what they hold."""

import bz2
import gzip
import lzma
import shutil
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any, cast

from nnlo_lib.errors import UserError

SUFFIXES = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz")
MOST_MEMBERS = 10_000_000
MARGIN = 100_000_000  # bytes that stay free on the disk
CHUNK = 1 << 20
COMPRESSED: dict[bytes, Callable[[Path], Any]] = {
    b"\x1f\x8b": gzip.open,
    b"BZh": bz2.open,
    b"\xfd7zXZ\0": lzma.open,
}
DAMAGED = (tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, OSError, NotImplementedError, RuntimeError)  # fmt: skip


@dataclass(frozen=True)
class Member:
    """One file in an archive; `name` is relative, with / between its parts."""

    name: str
    size: int
    stream: IO[bytes]


def is_archive(name: str) -> bool:
    """Tell an archive by its name."""
    return name.lower().endswith(SUFFIXES)


def extract(archive: Path, target: Path) -> None:
    """Extract all files into the new folder `target`, which appears only when all of them are there.

    Raises UserError naming archive and member for what is no plain file below `target`: an absolute path, `..`, a link,
    a device; for more than the disk holds; for a member that yields other than it declares; and for a damaged archive.
    """
    part = target.with_name(f".{target.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    try:
        _extract(archive, part)
        shutil.rmtree(target, ignore_errors=True)
        part.rename(target)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _extract(archive: Path, target: Path) -> None:
    room = shutil.disk_usage(target).free - MARGIN
    try:
        for number, member in enumerate(_members(archive)):
            path = target.joinpath(*_parts(archive, member.name))
            room -= member.size
            if room < 0 or number == MOST_MEMBERS:
                raise UserError(
                    f"{archive} holds more than the disk of {target.parent} has room for, at {member.name}"
                )
            path.parent.mkdir(parents=True, exist_ok=True)
            _write(archive, member, path)
    except DAMAGED as error:
        raise UserError(
            f"{archive} is damaged or no archive ({error or type(error).__name__}); get it again"
        ) from error


def _members(archive: Path) -> Iterator[Member]:
    members = _zip_members if archive.name.lower().endswith(".zip") else _tar_members
    return members(archive)


def _tar_members(archive: Path) -> Iterator[Member]:
    with _decompressed(archive) as stream:
        with tarfile.open(fileobj=stream, mode="r|") as tar:
            for info in tar:
                if info.isdir():
                    continue
                content = tar.extractfile(info) if info.isreg() else None
                if content is None:
                    raise UserError(
                        f"{archive}: {info.name} is a link or device; only plain files are extracted"
                    )
                yield Member(info.name, info.size, content)
        while stream.read(CHUNK):  # to the end, where the checksum of what was compressed is compared
            pass


def _decompressed(archive: Path) -> IO[bytes]:
    with archive.open("rb") as file:
        start = file.read(6)
    for magic, open_compressed in COMPRESSED.items():
        if start.startswith(magic):
            return cast(IO[bytes], open_compressed(archive))
    return archive.open("rb")


def _zip_members(archive: Path) -> Iterator[Member]:
    with zipfile.ZipFile(archive) as zipped:
        for info in zipped.infolist():
            if info.is_dir():
                continue
            if info.external_attr >> 28 not in (0, 8):  # the kind of file, where Unix wrote the archive
                raise UserError(
                    f"{archive}: {info.filename} is a link or device; only plain files are extracted"
                )
            with zipped.open(info) as stream:
                yield Member(info.filename, info.file_size, stream)


def _parts(archive: Path, name: str) -> tuple[str, ...]:
    path = PurePosixPath(name.replace("\\", "/"))
    if path.is_absolute() or ".." in path.parts or ":" in name or not path.parts or "\0" in name:
        raise UserError(f"{archive}: {name!r} would lie outside the folder; this archive cannot be trusted")
    return path.parts


def _write(archive: Path, member: Member, path: Path) -> None:
    """Write a member, and no more of it than it declares."""
    left = member.size
    with path.open("xb") as file:
        while chunk := member.stream.read(min(CHUNK, left + 1)):
            left -= len(chunk)
            if left < 0:
                break
            file.write(chunk)
    if left:
        raise UserError(
            f"{archive}: {member.name} does not hold the {member.size:,} bytes it declares; get it again"
        )


def inner(folder: Path) -> Path:
    """Return the only folder in `folder`, or `folder` if there is anything else."""
    inside = [path for path in folder.iterdir() if not path.name.startswith(".")]
    return inside[0] if len(inside) == 1 and inside[0].is_dir() else folder
