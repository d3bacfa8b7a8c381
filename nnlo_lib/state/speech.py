"""The launcher's own words, which nobody may be left to hear."""

import sys
from contextlib import suppress


def say(text: str) -> None:
    """Tell people something on stderr; a scheduler may have ended whoever read it, which must not end us, too."""
    say_raw(f"nnlo: {text}\n")


def say_raw(text: str) -> None:
    """Pass on what somebody else said."""
    with suppress(OSError):
        sys.stderr.write(text)
        sys.stderr.flush()
