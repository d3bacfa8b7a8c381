"""Checks of models that have passed before, so that an unchanged one needs no torch, whose import takes a second."""

import hashlib
import os
import sys
from functools import cache
from importlib.metadata import version
from pathlib import Path

from nnlo_lib.core.installation import __version__

PACKAGE = Path(__file__).parents[1]
MAX_BYTES = 200_000  # about 6,000 checks; a larger file is replaced by a new one
DIGEST_CHARACTERS = 32
# RuntimeError: the user of a container has no home folder; ImportError: torch was installed without its metadata.
UNUSABLE = (OSError, UnicodeDecodeError, RuntimeError, ImportError)


def passed_before(*facts: str) -> bool:
    """Return True if a check that depends on nothing but `facts` and the installed code has passed on this account."""
    try:
        return _digest(facts) in _path().read_text().split()
    except UNUSABLE:
        return False


def remember_passed(*facts: str) -> None:
    """Remember that the check of `facts` has passed; without a home folder to write into, it is done again each time."""
    try:
        path = _path()
        path.parent.mkdir(parents=True, exist_ok=True)
        full = path.exists() and path.stat().st_size > MAX_BYTES
        # One write of a line to the end: lines of processes that check at once do not mix.
        with path.open("w" if full else "a") as file:
            file.write(f"{_digest(facts)}\n")
    except UNUSABLE:
        pass


def _path() -> Path:
    """Return the file: in $NNLO_CACHE, else in ~/.cache/nnlo."""
    return Path(os.environ.get("NNLO_CACHE") or Path("~/.cache/nnlo").expanduser(), "passed_checks")


def _digest(facts: tuple[str, ...]) -> str:
    return hashlib.sha256("\0".join([*_installed(), *facts]).encode()).hexdigest()[:DIGEST_CHARACTERS]


@cache
def _installed() -> tuple[str, ...]:
    """Return the versions and the files of the code that decide the outcome of a check."""
    files = sorted(PACKAGE.rglob("*.py"))
    stamps = [f"{file} {(found := file.stat()).st_size} {found.st_mtime_ns}" for file in files]
    return (sys.version, version("torch"), version("numpy"), __version__, *stamps)
