"""What is installed: the version of nnlo, and where its workflow, scripts, profiles and examples lie."""

import subprocess
from functools import cache
from pathlib import Path

__version__ = "0.2.0"

_FOLDER = Path(__file__).parents[
    2
]  # a clone, or the site-packages of a wheel, into which pyproject.toml puts nnlo_project
PROJECT = _FOLDER / "nnlo_project" if (_FOLDER / "nnlo_project").is_dir() else _FOLDER
SNAKEFILE = PROJECT / "workflow" / "Snakefile"
SCRIPTS = PROJECT / "scripts"
PROFILES = PROJECT / "profiles"
# A cluster brings its own MPI, so nnlo does not depend on one.
MPI_REMEDY = "load the MPI of the cluster, or pip install 'nnlo[mpich]'"


def conda_variables() -> dict[str, str]:
    """Return the variables that pip replaces in the lines of workflow/envs/nnlo.yaml, of which conda gets a copy in another folder."""
    itself = f"--editable {PROJECT}" if PROJECT == _FOLDER else f"nnlo=={__version__}"
    return {"NNLO_LOCK": str(PROJECT / "requirements.lock"), "NNLO_ITSELF": itself}


@cache
def code_version() -> str:
    """Return the installed version and, in a git checkout, its commit; `+` marks modified files."""
    if not (PROJECT / ".git").exists():  # git would describe a repository of the user around the environment
        return __version__
    git = ["git", "-C", str(PROJECT), "describe", "--always", "--dirty=+", "--abbrev=12"]
    try:
        commit = subprocess.run(git, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
    # git is not installed, or the file system does not respond.
    except (OSError, subprocess.SubprocessError):
        return __version__
    return f"{__version__} ({commit})"
