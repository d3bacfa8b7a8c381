"""Archives, tar and zip: recognition by name, and safe extraction of untrusted contents.

The headers of a tar have checksums, the contents of its files do not. A plain tar that lost bytes is refused; a
changed byte in the content of one of its files cannot be noticed, in contrast to compressed tars and zips.
"""

import bz2
import gzip
import lzma
import os
import shutil
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any, Self, cast

from nnlo_lib.core.errors import UserError

ARCHIVE_SUFFIXES = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz")
LEFT_BY_FILE_MANAGERS = ("__macosx", "thumbs.db", "ehthumbs.db", "desktop.ini", "@eadir")
MAX_MEMBERS = 10_000_000
FREE_SPACE_MARGIN_BYTES = 100_000_000  # bytes of the disk that extraction leaves free
HIGHEST_RATIO = 1100  # deflate reaches 1032; a higher ratio indicates a bomb
MAX_TAR_METADATA_BYTES = 1 << 24  # between the contents of two files: headers, long names, padding
CHUNK_BYTES = 1 << 20
END_RECORD = b"PK\x05\x06"
END_BYTES = 22  # the record at the end of a zip without its comment
MAX_END_BYTES = END_BYTES + 0xFFFF
ZIP64_COUNT = 0xFFFF  # number of files in the record of a zip that has its number elsewhere
COMPRESSED: dict[bytes, Callable[[Path], Any]] = {
    b"\x1f\x8b": gzip.open,
    b"BZh": bz2.open,
    b"\xfd7zXZ\0": lzma.open,
}
# zipfile raises RuntimeError for encrypted members and NotImplementedError for unknown compressions.
DAMAGED = (tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, OSError, NotImplementedError, RuntimeError)  # fmt: skip


def is_archive(name: str) -> bool:
    """Return True if the name has the suffix of an archive."""
    return name.lower().endswith(ARCHIVE_SUFFIXES)


def is_visible(name: str) -> bool:
    """Return True if a file or folder of this name can hold data."""
    return not name.startswith(".") and name.lower() not in LEFT_BY_FILE_MANAGERS


def single_subfolder(folder: Path) -> Path:
    """Return the only visible entry of `folder` if it is a folder, else `folder` itself."""
    inside = [path for path in folder.iterdir() if is_visible(path.name)]
    return inside[0] if len(inside) == 1 and inside[0].is_dir() else folder


def extract(archive: Path, target: Path) -> None:
    """Extract all files into `target`, replacing it; `target` changes only after all files are extracted.

    Raises:
        UserError: if a member is not a plain file below `target` (absolute path, `..`, link, device); if the
            members need more space than the disk has free, or grow more than HIGHEST_RATIO times and beyond
            FREE_SPACE_MARGIN_BYTES (decompression bomb), or are more than MAX_MEMBERS; if the content of a
            member does not have its declared size; if the archive is damaged; or if the file system reports
            an error.
    """
    part = target.with_name(f".{target.name}.part")
    # A process that was killed can have left its partial folder.
    shutil.rmtree(part, ignore_errors=True)
    try:
        part.mkdir(parents=True)
        _extract(archive, part)
        # A rename cannot replace a folder that is not empty.
        shutil.rmtree(target, ignore_errors=True)
        part.rename(target)
    except DAMAGED as error:
        if getattr(error, "errno", None):  # an error of the file system, not of a decompressor
            raise UserError(f"cannot extract {archive} into {target}: {error}") from error
        raise UserError(
            f"{archive}: damaged or not an archive ({error or type(error).__name__}); download or copy it again"
        ) from error
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _extract(archive: Path, target: Path) -> None:
    room = shutil.disk_usage(target).free - FREE_SPACE_MARGIN_BYTES
    max_bytes = max(HIGHEST_RATIO * archive.stat().st_size, FREE_SPACE_MARGIN_BYTES)
    total = 0
    members = _zip_members if archive.name.lower().endswith(".zip") else _tar_members
    for number, member in enumerate(members(archive)):
        # Declared sizes suffice for the limits below, because _write refuses content beyond the declared size.
        total += member.size
        if number == MAX_MEMBERS:
            raise UserError(
                f"{archive}: more than {MAX_MEMBERS:,} files (at {member.name}); extract the archive yourself and set "
                f"data.source to the folder"
            )
        if total > room:
            raise UserError(
                f"{archive}: the files up to {member.name} need {total:,} bytes, more than the free disk space of "
                f"{target.parent}; free some disk space"
            )
        if total > max_bytes:
            raise UserError(
                f"{archive}: the files up to {member.name} are more than {HIGHEST_RATIO} times as large as the archive, "
                f"which indicates a decompression bomb; if you trust the archive, extract it yourself and set data.source "
                f"to the folder"
            )
        path = target.joinpath(*_parts(archive, member.name))
        path.parent.mkdir(parents=True, exist_ok=True)
        _write(archive, member, path)


def _parts(archive: Path, name: str) -> tuple[str, ...]:
    # Archives that were made on Windows can contain backslashes and drive letters.
    path = PurePosixPath(name.replace("\\", "/"))
    if path.is_absolute() or ".." in path.parts or ":" in name or not path.parts or "\0" in name:
        raise UserError(
            f"{archive}: the path {name!r} could be outside the target folder; do not use an archive with absolute paths, "
            f"'..', ':' or empty names"
        )
    return path.parts


@dataclass(frozen=True)
class Member:
    """One file in an archive; `name` is the path as stored in the archive, not yet checked."""

    name: str
    size: int
    stream: IO[bytes]


def _write(archive: Path, member: Member, path: Path) -> None:
    """Write at most the declared size of a member. Raises UserError if the content has another size."""
    left = member.size
    # Mode "x" refuses a second member with the same path.
    with path.open("xb") as file:
        # One byte more than declared is requested, which reveals content that is too long.
        while chunk := member.stream.read(min(CHUNK_BYTES, left + 1)):
            left -= len(chunk)
            if left < 0:
                break
            file.write(chunk)
    if left:
        raise UserError(
            f"{archive}: {member.name} does not have the declared size of {member.size:,} bytes; download or copy the "
            f"archive again"
        )


def _zip_members(archive: Path) -> Iterator[Member]:
    """Yield the files of a zip. Raises zipfile.BadZipFile if the zip is damaged."""
    with zipfile.ZipFile(archive) as zipped:
        _check_count(archive, len(zipped.infolist()))
        for info in zipped.infolist():
            if info.is_dir():
                continue
            if info.external_attr >> 28 not in (0, 8):  # type of the file, if the archive was written on Unix
                raise _not_plain(archive, info.filename)
            with zipped.open(info) as stream:
                yield Member(info.filename, info.file_size, stream)


def _check_count(archive: Path, found: int) -> None:
    """Raise zipfile.BadZipFile if the directory of the zip does not have as many files as its end record says.

    A damaged length in the directory hides the files that follow, which zipfile does not notice.
    """
    with archive.open("rb") as file:
        file.seek(-min(MAX_END_BYTES, file.seek(0, os.SEEK_END)), os.SEEK_END)
        tail = file.read()
    # The last place at which a whole record fits.
    record = tail.rfind(END_RECORD, 0, len(tail) - END_BYTES + len(END_RECORD))
    (declared,) = struct.unpack_from("<H", tail, record + 10)
    if declared not in (found & 0xFFFF, ZIP64_COUNT):
        raise zipfile.BadZipFile(f"{found} files in the directory instead of {declared}")


def _tar_members(archive: Path) -> Iterator[Member]:
    """Yield the files of a tar; each must be read before the next. Raises tarfile.TarError if it is damaged."""
    with _decompressed(archive) as stream:
        bounded = _Bounded(stream)
        # In stream mode, tarfile only calls read() and never seeks, so that all bytes pass through `bounded`.
        file = cast(IO[bytes], bounded)
        with tarfile.open(fileobj=file, mode="r|", tarinfo=_CheckedHeader) as tar:
            while (info := tar.next()) is not None:
                tar.members.clear()  # type: ignore[attr-defined]  # tarfile would keep all of them in memory
                bounded.left = info.size + MAX_TAR_METADATA_BYTES
                if not info.isdir():
                    yield Member(info.name, info.size, _content(archive, tar, info))
                # A sparse file occupies fewer bytes of the archive than its size; the rest must not become
                # room for a huge header.
                bounded.left = MAX_TAR_METADATA_BYTES
            _check_end(cast(IO[bytes], tar.fileobj), bounded)


def _decompressed(archive: Path) -> IO[bytes]:
    with archive.open("rb") as file:
        start = file.read(6)
    for magic, open_compressed in COMPRESSED.items():
        if start.startswith(magic):
            return cast(IO[bytes], open_compressed(archive))
    return archive.open("rb")


class _CheckedHeader(tarfile.TarInfo):
    """Header whose damage is an error; tarfile takes a damaged or missing header for the end of the archive."""

    @classmethod
    def fromtarfile(cls, tar: tarfile.TarFile) -> Self:
        try:
            return super().fromtarfile(tar)
        except tarfile.EOFHeaderError:  # type: ignore[attr-defined]  # the first block of zeros, the regular end
            raise
        except tarfile.EmptyHeaderError as error:  # type: ignore[attr-defined]
            raise tarfile.ReadError("truncated: the blocks that mark the end are missing") from error
        except tarfile.HeaderError as error:
            raise tarfile.ReadError(f"a header is damaged: {error}") from error


class _Bounded:
    """Stream that yields at most `left` more bytes, because tarfile reads headers of any size into memory."""

    def __init__(self, stream: IO[bytes]) -> None:
        self.stream, self.left = stream, MAX_TAR_METADATA_BYTES

    def read(self, size: int) -> bytes:
        chunk = self.stream.read(size)
        self.left -= len(chunk)
        if self.left < 0:
            raise tarfile.ReadError("too many bytes of metadata between two files")
        return chunk


def _check_end(stream: IO[bytes], bounded: _Bounded) -> None:
    """Read the rest after the first block of zeros. Raises tarfile.ReadError unless it is the end of a tar.

    Reading to the end also verifies the checksum of a compressed stream.
    """
    if len(chunk := stream.read(tarfile.BLOCKSIZE)) < tarfile.BLOCKSIZE:
        raise tarfile.ReadError("truncated: the second block of zeros that marks the end is missing")
    while chunk:
        if chunk.count(0) < len(chunk):
            raise tarfile.ReadError("further data follow the end of the archive")
        # Each chunk is dropped at once, so that padding of any length needs no memory.
        bounded.left = MAX_TAR_METADATA_BYTES
        chunk = stream.read(CHUNK_BYTES)


def _content(archive: Path, tar: tarfile.TarFile, info: tarfile.TarInfo) -> IO[bytes]:
    content = tar.extractfile(info) if info.isreg() else None
    if content is None:
        raise _not_plain(archive, info.name)
    return content


def _not_plain(archive: Path, name: str) -> UserError:
    """Return the error of an archive with a member that is neither a file nor a folder."""
    return UserError(f"{archive}: {name} is a link or device; make the archive again with plain files only")
