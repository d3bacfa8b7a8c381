"""The container of a run's ranks: a command between the launcher and Python."""

import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from nnlo_lib.config import Run
from nnlo_lib.core.errors import UserError

START_TIMEOUT_S = 300  # the first start of an image may unpack it
IMPORT = ("python3", "-c", "import nnlo_lib")


def rank_python(run: Run) -> list[str]:
    """Return the words that start the Python of a rank: this interpreter, or the one of the image."""
    return [*_words(run), "python3"] if run.resources.container else [sys.executable]


def check_container(run: Run, environment: Mapping[str, str]) -> None:
    """Start the container of a run once on this host.

    Args:
        run: settings of the run.
        environment: environment of the ranks.

    Raises:
        UserError: if the program or the image is missing, the image has no nnlo, or the start takes too long.
    """
    if not (words := _words(run)):
        return
    if not shutil.which(words[0], path=environment.get("PATH")):
        raise UserError(
            f"resources.container: '{words[0]}' not found on this host; load its module before the start, or change the command"
        )
    for word in words:
        if word.endswith((".sif", ".simg")) and not Path(word.rpartition("=")[2]).exists():
            raise UserError(
                f"resources.container: image not found: {word}; paths are relative to {Path.cwd()}"
            )
    _import_nnlo(words, environment)


def _import_nnlo(words: list[str], environment: Mapping[str, str]) -> None:
    try:
        done = subprocess.run(
            [*words, *IMPORT], env=dict(environment), capture_output=True, text=True, timeout=START_TIMEOUT_S,
            stdin=subprocess.DEVNULL, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise UserError(
            f"resources.container: '{shlex.join([*words, *IMPORT])}' did not end in {START_TIMEOUT_S} s; check the image"
        ) from error
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["it printed nothing"])[-1]
        raise UserError(
            f"resources.container: '{shlex.join([*words, *IMPORT])}' ended with status {done.returncode} ({last}); "
            "install nnlo in the image, with the versions of requirements.lock"
        )


def _words(run: Run) -> list[str]:
    return shlex.split(run.resources.container or "")
