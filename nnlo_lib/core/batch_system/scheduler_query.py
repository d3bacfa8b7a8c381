"""Commands of the batch system of this host. A query that fails counts as one with empty output."""

import shlex
import subprocess

from nnlo_lib.core.logging_setup import get_logger

logger = get_logger(__name__)

QUERY_TIMEOUT_S = 15  # the scheduler may be overloaded or unreachable


def query_scheduler(*command: str, timeout: float = QUERY_TIMEOUT_S) -> str:
    """Return the output of a command of the scheduler, or an empty string if it fails or takes too long.

    Args:
        *command: command and its arguments.
        timeout: limit in seconds.
    """
    try:
        return _run(*command, timeout=timeout).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        return ""


def request_scheduler(*command: str) -> str:
    """Run a command that changes a job; return the error of the scheduler, or an empty string on success."""
    try:
        done = _run(*command)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return done.stderr.strip() or f"status {done.returncode}" if done.returncode else ""


def _run(*command: str, timeout: float = QUERY_TIMEOUT_S) -> "subprocess.CompletedProcess[str]":
    logger.debug(f"asks the scheduler: {shlex.join(command)}")
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=timeout,
        stdin=subprocess.DEVNULL,
        check=False,
    )
