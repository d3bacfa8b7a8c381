"""Files of a tar, plain or compressed, read once from start to end, with a check of everything that tar can check.

The headers of a tar have checksums, the contents of its files do not. A plain tar that lost bytes is refused; a
changed byte in the content of one of its files cannot be noticed, in contrast to compressed tars and zips.
"""

import bz2
import gzip
import lzma
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, Self, cast

from nnlo_lib.data.fetch.archive_member import Member, not_plain

# Bytes between the contents of two files of a tar: headers, long names, padding.
MAX_TAR_METADATA_BYTES = 1 << 24
CHUNK_BYTES = 1 << 20
COMPRESSED: dict[bytes, Callable[[Path], Any]] = {
    b"\x1f\x8b": gzip.open,
    b"BZh": bz2.open,
    b"\xfd7zXZ\0": lzma.open,
}


def tar_members(archive: Path) -> Iterator[Member]:
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
        raise not_plain(archive, info.name)
    return content


def _decompressed(archive: Path) -> IO[bytes]:
    with archive.open("rb") as file:
        start = file.read(6)
    for magic, open_compressed in COMPRESSED.items():
        if start.startswith(magic):
            return cast(IO[bytes], open_compressed(archive))
    return archive.open("rb")
