"""The version of nnlo."""

import subprocess
from functools import cache
from pathlib import Path

__version__ = "0.2.0"


@cache
def code_version() -> str:
    """Return the installed version and, in a git checkout, its commit; `+` marks modified files."""
    folder = Path(__file__).parent
    git = ["git", "-C", str(folder), "describe", "--always", "--dirty=+", "--abbrev=12"]
    try:
        commit = subprocess.run(git, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
    # git is not installed, the package is not in a checkout, or the file system does not respond.
    except (OSError, subprocess.SubprocessError):
        return __version__
    return f"{__version__} ({commit})"
