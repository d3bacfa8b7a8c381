"""What a check found: a sentence, and whether it speaks against the run."""

from typing import Literal, NamedTuple


class Finding(NamedTuple):
    """One line of `nnlo verify`."""

    status: Literal["ok", "FAILED", "note"]
    message: str

    def __str__(self) -> str:
        return f"  {self.status:<8}{self.message}"


def ok(sentence: str) -> Finding:
    """Say what holds."""
    return Finding("ok", sentence)


def failed(sentence: str) -> Finding:
    """Say what does not hold."""
    return Finding("FAILED", sentence)


def note(sentence: str) -> Finding:
    """Say what is neither right nor wrong."""
    return Finding("note", sentence)
