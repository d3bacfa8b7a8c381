"""Access to the content of files that are stored plain or compressed by gzip."""

import gzip
import hashlib
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO, cast

from nnlo_lib.core.errors import UserError
from nnlo_lib.data.fetch.record import FileVersion, file_version

CONTENT_CHUNK_BYTES = 1 << 20
DEFLATE_LIMIT = 1040  # approximate upper bound of the ratio of decompressed to compressed bytes in deflate
GZIP_MAGIC = b"\x1f\x8b"


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
    with (
        _damage_named(called or str(path)),
        cast(BinaryIO, gzip.open(path)) if is_gzip(path) else path.open("rb") as stream,
    ):
        yield stream


@contextmanager
def open_at(path: Path, offset: int) -> Iterator[BinaryIO]:
    """Open the decompressed content at a byte offset. Raises UserError like `open_decompressed`.

    A process that reads a compressed file piece by piece in order decompresses the file once in total, because
    the stream of the last call remains open.
    """
    with _damage_named(str(path)):
        if not is_gzip(path):
            with path.open("rb") as plain:
                plain.seek(offset)
                yield plain
            return
        # A forked process must not share the position in the file with the other processes.
        stream = _kept_stream(path, file_version(path), os.getpid())
        try:
            stream.seek(offset)
            yield stream
        except BaseException:
            # The state of a stream after an error is undefined.
            _kept_stream.cache_clear()
            raise


@lru_cache(maxsize=4)
def _kept_stream(path: Path, _version: FileVersion, _process: int) -> BinaryIO:
    """Return the same open stream for each call with the same version of the file in the same process."""
    return cast(BinaryIO, gzip.open(path))


@contextmanager
def _damage_named(called: str) -> Iterator[None]:
    """Turn the errors of a damaged file into UserErrors that name the file as `called`."""
    try:
        yield
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
    digest = hashlib.sha256()
    with open_decompressed(path, called) as stream:
        while chunk := stream.read(CONTENT_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()
