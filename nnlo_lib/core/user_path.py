"""Paths of the user with `~` and environment variables, as a shell reads them."""

import os
import re

VARIABLE = re.compile(r"\$\{?(\w+)")


def expanded(path: str) -> str:
    """Return a path without `~` and without variables that are set; `$` in the name of an existing file stays."""
    return os.path.expanduser(path if os.path.lexists(path) else os.path.expandvars(path))


def unset_variable(path: str) -> str | None:
    """Return the first variable in a path that is empty or not set, or None."""
    names = () if os.path.lexists(path) else VARIABLE.findall(path)
    return next((name for name in names if not os.environ.get(name)), None)
