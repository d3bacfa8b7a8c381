"""The content of a file, whether it is stored plain or compressed by gzip."""

import gzip
import hashlib
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

from nnlo_lib.core.errors import UserError

CONTENT_CHUNK_BYTES = 1 << 20
DEFLATE_LIMIT = 1040  # deflate cannot make its input grow by more than about this
GZIP_MAGIC = b"\x1f\x8b"


def variants(name: str) -> tuple[str, ...]:
    """List the names under which the file may lie: as it is published, and decompressed."""
    return (name, name.removesuffix(".gz")) if name.endswith(".gz") else (name,)


def find_plain_or_gzip(folder: Path, name: str) -> Path | None:
    """Return the path of `name` in `folder`, compressed or not, or None."""
    return next((folder / each for each in variants(name) if (folder / each).is_file()), None)


def is_gzip(path: Path) -> bool:
    """Tell by its first bytes whether the file is compressed."""
    with path.open("rb") as file:
        return file.read(2) == GZIP_MAGIC


@contextmanager
def open_decompressed(path: Path, called: str | None = None) -> Iterator[BinaryIO]:
    """Open the decompressed content; raises UserError naming the file (or `called`) if it is damaged."""
    try:
        with cast(BinaryIO, gzip.open(path)) if is_gzip(path) else path.open("rb") as stream:
            yield stream
    except EOFError as error:
        raise UserError(
            f"{called or path} is truncated (the gzip stream ends early); get it again"
        ) from error
    except (gzip.BadGzipFile, zlib.error) as error:
        raise UserError(f"{called or path} is damaged ({error}); get it again") from error
    except OSError as error:
        raise UserError(f"cannot read {called or path}: {error.strerror or error}") from error


def content_sha256(path: Path, called: str | None = None) -> str:
    """Return the SHA-256 of the decompressed content, streamed; errors as for `opened`."""
    digest = hashlib.sha256()
    with open_decompressed(path, called) as stream:
        while chunk := stream.read(CONTENT_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()
