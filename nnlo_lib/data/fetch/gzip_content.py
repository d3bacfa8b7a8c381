"""Access to the content of files that are stored plain or compressed by gzip."""

import gzip
import hashlib
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

from nnlo_lib.core.errors import UserError

CONTENT_CHUNK_BYTES = 1 << 20
DEFLATE_LIMIT = 1040  # approximate upper bound of the ratio of decompressed to compressed bytes in deflate
GZIP_MAGIC = b"\x1f\x8b"


def variants(name: str) -> tuple[str, ...]:
    """Return the possible names of a file: as published, and without .gz if it has that suffix."""
    return (name, name.removesuffix(".gz")) if name.endswith(".gz") else (name,)


def find_plain_or_gzip(folder: Path, name: str) -> Path | None:
    """Return the path of `name` in `folder`, with or without .gz; None if neither file exists."""
    return next((folder / each for each in variants(name) if (folder / each).is_file()), None)


def is_gzip(path: Path) -> bool:
    """Return True if the first bytes show that the file is compressed by gzip."""
    with path.open("rb") as file:
        return file.read(2) == GZIP_MAGIC


@contextmanager
def open_decompressed(path: Path, called: str | None = None) -> Iterator[BinaryIO]:
    """Open the decompressed content. Raises UserError with the path (or `called`) if the file is damaged."""
    try:
        with cast(BinaryIO, gzip.open(path)) if is_gzip(path) else path.open("rb") as stream:
            yield stream
    except EOFError as error:
        raise UserError(
            f"{called or path}: truncated (the gzip stream ends early); download or copy it again"
        ) from error
    except (gzip.BadGzipFile, zlib.error) as error:
        raise UserError(f"{called or path}: damaged ({error}); download or copy it again") from error
    except OSError as error:
        raise UserError(f"cannot read {called or path}: {error.strerror or error}") from error


def content_sha256(path: Path, called: str | None = None) -> str:
    """Return the SHA-256 of the decompressed content. Raises UserError like `open_decompressed`."""
    digest = hashlib.sha256()
    with open_decompressed(path, called) as stream:
        while chunk := stream.read(CONTENT_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()
