"""Texts of the user: paths with `~` and environment variables, as a shell reads them, and files as editors save them."""

import os
import re

VARIABLE = re.compile(r"\$\{?(\w+)")
UTF_16 = (b"\xff\xfe", b"\xfe\xff")  # first bytes of what PowerShell writes


def expanded(path: str) -> str:
    """Return a path without `~` and without variables that are set; `$` in the name of an existing file stays."""
    return os.path.expanduser(path if os.path.lexists(path) else os.path.expandvars(path))


def unset_variable(path: str) -> str | None:
    """Return the first variable in a path that is empty or not set, or None."""
    names = () if os.path.lexists(path) else VARIABLE.findall(path)
    return next((name for name in names if not os.environ.get(name)), None)


def decoded(text: bytes, errors: str = "strict") -> str:
    """Return a text in UTF-8 or, with its mark, UTF-16, with the line ends of Unix. Raises UnicodeDecodeError."""
    found = text.decode("utf-16" if text.startswith(UTF_16) else "utf-8-sig", errors)
    return found.replace("\r\n", "\n")
