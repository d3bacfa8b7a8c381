"""Which nnlo this is."""

import subprocess
from functools import cache
from importlib.metadata import version
from pathlib import Path


@cache
def code_version() -> str:
    """Return the installed version with the git commit it runs from, `+` if files differ from it."""
    here = Path(__file__).parent
    git = ["git", "-C", str(here), "describe", "--always", "--dirty=+", "--abbrev=12"]
    try:
        commit = subprocess.run(git, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return version("nnlo")
    return f"{version('nnlo')} ({commit})"
