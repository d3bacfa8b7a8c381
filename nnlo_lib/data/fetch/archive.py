"""Archives, tar and zip: recognition by name, and safe extraction of untrusted contents; files compressed by gzip."""

import gzip
import hashlib
import lzma
import shutil
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, BinaryIO, cast

from nnlo_lib.core.errors import UserError

ARCHIVE_SUFFIXES = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz")
LEFT_BY_FILE_MANAGERS = ("__macosx", "thumbs.db", "ehthumbs.db", "desktop.ini", "@eadir")
FREE_SPACE_MARGIN_BYTES = 100_000_000  # bytes of the disk that extraction leaves free
HIGHEST_RATIO = 1100  # deflate reaches 1032; a higher ratio indicates a bomb
CONTENT_CHUNK_BYTES = 1 << 20
DEFLATE_LIMIT = 1040  # approximate upper bound of the ratio of decompressed to compressed bytes in deflate
GZIP_MAGIC = b"\x1f\x8b"
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

    Raises UserError if a member is not a plain file below `target` (absolute path, `..`, link, device); if the members
    need more space than the disk has free, or grow more than HIGHEST_RATIO times and beyond FREE_SPACE_MARGIN_BYTES
    (decompression bomb); if the archive is damaged; or if the file system reports an error.
    """
    part = target.with_name(f".{target.name}.part")
    # A process that was killed can have left its partial folder.
    shutil.rmtree(part, ignore_errors=True)
    try:
        part.mkdir(parents=True)
        members = _Members(archive, part)
        if archive.name.lower().endswith(".zip"):
            members.extract_zip()
        else:
            members.extract_tar()
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


class _Members:
    """Files of one archive, each of which is checked before it is written below `target`."""

    def __init__(self, archive: Path, target: Path) -> None:
        self.archive, self.target, self.total = archive, target, 0
        free = shutil.disk_usage(target).free - FREE_SPACE_MARGIN_BYTES
        self.limits = {
            f"more than the free disk space of {target.parent}; free some disk space": free,
            f"more than {HIGHEST_RATIO} times the size of the archive, which indicates a decompression bomb; if you trust the "
            "archive, extract it yourself and set data.source to the folder": max(
                HIGHEST_RATIO * archive.stat().st_size, FREE_SPACE_MARGIN_BYTES
            ),
        }

    def accept(self, name: str, size: int, is_plain: bool) -> str:
        """Return the path of the next file with slashes. Raises UserError if the file must not be written.

        `size` is the declared size, which suffices: tarfile and zipfile do not read beyond it.
        """
        # Archives that were made on Windows can contain backslashes and drive letters.
        path = PurePosixPath(name.replace("\\", "/"))
        if not is_plain or path.is_absolute() or ".." in path.parts or ":" in name or not path.parts:
            raise UserError(
                f"{self.archive}: {name!r} is a link or device, or could be outside the target folder; make the archive again "
                f"with plain files only, without absolute paths, '..', ':' or empty names"
            )
        self.total += size
        for reason, limit in self.limits.items():
            if self.total > limit:
                raise UserError(f"{self.archive}: the files up to {name} need {self.total:,} bytes, {reason}")
        return str(path)

    def extract_zip(self) -> None:
        with zipfile.ZipFile(self.archive) as zipped:
            for info in zipped.infolist():
                if not info.is_dir():
                    # 0 and 8: no type, because the archive was not written on Unix, and a regular file.
                    is_plain = info.external_attr >> 28 in (0, 8)
                    info.filename = self.accept(info.filename, info.file_size, is_plain)
                    zipped.extract(info, self.target)

    def extract_tar(self) -> None:
        """Extract the files of a tar, plain or compressed by gzip, bzip2 or xz."""
        with tarfile.open(self.archive) as tar:
            while (info := tar.next()) is not None:
                tar.members.clear()  # type: ignore[attr-defined]  # tarfile would keep all of them in memory
                if not info.isdir():
                    info.name = self.accept(info.name, info.size, info.isreg())
                    tar.extract(info, self.target, set_attrs=False, filter="data")
            # tarfile takes a damaged header, and the place where a tar was cut, for its end. Reading on also verifies the
            # checksum of a compressed stream.
            stream = cast(IO[bytes], tar.fileobj)
            stream.seek(tar.offset)
            size = zeros = 0
            while chunk := stream.read(CONTENT_CHUNK_BYTES):
                size, zeros = size + len(chunk), zeros + chunk.count(0)
            if zeros < max(size, 2 * tarfile.BLOCKSIZE):
                raise tarfile.ReadError(
                    f"two blocks of zeros and nothing else must follow byte {tar.offset:,}"
                )


def variants(name: str) -> tuple[str, ...]:
    """Return the possible names of a file: as published, and without .gz if it has that suffix."""
    return (name, name.removesuffix(".gz")) if name.endswith(".gz") else (name,)


def find_plain_or_gzip(folder: Path, name: str) -> Path | None:
    """Return the path of `name` in `folder`, with or without .gz; None if neither file exists.

    MNIST's files are often named with a dot, as in train-images.idx3-ubyte.
    """
    names = [*variants(name), *variants(name.replace("-idx", ".idx"))]
    return next((folder / each for each in names if (folder / each).is_file()), None)


def is_gzip(path: Path) -> bool:
    """Return True if the first bytes show that the file is compressed by gzip."""
    with path.open("rb") as file:
        return file.read(2) == GZIP_MAGIC


@contextmanager
def open_decompressed(path: Path, called: str | None = None) -> Iterator[BinaryIO]:
    """Open the decompressed content. Raises UserError with the path (or `called`) if the file is damaged."""
    called = called or str(path)
    try:
        with cast(BinaryIO, gzip.open(path)) if is_gzip(path) else path.open("rb") as stream:
            yield stream
    except EOFError as error:
        raise UserError(
            f"{called}: truncated (the gzip stream ends early); download or copy it again"
        ) from error
    except (gzip.BadGzipFile, zlib.error) as error:
        raise UserError(f"{called}: damaged ({error}); download or copy it again") from error
    except OSError as error:
        raise UserError(f"cannot read {called}: {error.strerror or error}") from error


def content_sha256(path: Path, called: str | None = None) -> str:
    """Return the SHA-256 of the decompressed content. Raises UserError like `open_decompressed`."""
    with open_decompressed(path, called) as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()  # type: ignore[arg-type]  # both have `readinto`
