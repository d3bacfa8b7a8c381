"""One file in an archive."""

from dataclasses import dataclass
from pathlib import Path
from typing import IO

from nnlo_lib.core.errors import UserError


@dataclass(frozen=True)
class Member:
    """One file in an archive; `name` is the path as stored in the archive, not yet checked."""

    name: str
    size: int
    stream: IO[bytes]


def not_plain(archive: Path, name: str) -> UserError:
    """Return the error of an archive with a member that is neither a file nor a folder."""
    return UserError(f"{archive}: {name} is a link or device; make the archive again with plain files only")
