"""Archives: recognition by name, and safe extraction of untrusted contents."""

import lzma
import shutil
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from nnlo_lib.core.errors import UserError
from nnlo_lib.data.fetch.archive_member import Member
from nnlo_lib.data.fetch.tar_archive import tar_members
from nnlo_lib.data.fetch.visible import is_visible
from nnlo_lib.data.fetch.zip_archive import zip_members

ARCHIVE_SUFFIXES = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz")
MAX_MEMBERS = 10_000_000
FREE_SPACE_MARGIN_BYTES = 100_000_000  # bytes of the disk that extraction leaves free
HIGHEST_RATIO = 1100  # deflate reaches 1032; a higher ratio indicates a bomb
CHUNK_BYTES = 1 << 20
# zipfile raises RuntimeError for encrypted members and NotImplementedError for unknown compressions.
DAMAGED = (tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, OSError, NotImplementedError, RuntimeError)  # fmt: skip


def is_archive(name: str) -> bool:
    """Return True if the name has the suffix of an archive."""
    return name.lower().endswith(ARCHIVE_SUFFIXES)


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
    for number, member in enumerate(_members(archive)):
        # Declared sizes suffice for the limits below, because _write refuses content beyond the declared
        # size.
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


def _members(archive: Path) -> Iterator[Member]:
    members = zip_members if archive.name.lower().endswith(".zip") else tar_members
    return members(archive)


def _parts(archive: Path, name: str) -> tuple[str, ...]:
    # Archives that were made on Windows can contain backslashes and drive letters.
    path = PurePosixPath(name.replace("\\", "/"))
    if path.is_absolute() or ".." in path.parts or ":" in name or not path.parts or "\0" in name:
        raise UserError(
            f"{archive}: the path {name!r} could be outside the target folder; do not use an archive with absolute paths, "
            f"'..', ':' or empty names"
        )
    return path.parts


def _write(archive: Path, member: Member, path: Path) -> None:
    """Write at most the declared size of a member. Raises UserError if the content has another size.

    Args:
        archive: path of the archive, for error messages.
        member: file in the archive.
        path: new file to write.
    """
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


def single_subfolder(folder: Path) -> Path:
    """Return the only visible entry of `folder` if it is a folder, else `folder` itself."""
    inside = [path for path in folder.iterdir() if is_visible(path.name)]
    return inside[0] if len(inside) == 1 and inside[0].is_dir() else folder
