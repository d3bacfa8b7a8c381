"""Finding of a check: a status and a sentence."""

from typing import Literal, NamedTuple


class Finding(NamedTuple):
    """One line of `nnlo verify`."""

    status: Literal["ok", "FAILED", "note"]
    message: str

    def __str__(self) -> str:
        return f"  {self.status:<8}{self.message}"


def ok(sentence: str) -> Finding:
    """Return a finding for a check that passed."""
    return Finding("ok", sentence)


def failed(sentence: str) -> Finding:
    """Return a finding for a check that failed."""
    return Finding("FAILED", sentence)


def note(sentence: str) -> Finding:
    """Return a finding that is only information."""
    return Finding("note", sentence)
