"""The product's fork server, for tests of the results of trainings: imports take most of the time of a small training.

Tests of process behavior (crashes, kills, files left behind) start real processes.
"""

import functools
import os
from unittest import mock

from helpers.repository_copy import environment
from nnlo_lib.launch.fork_server import start_fork_server


@functools.cache
def python() -> str:
    """Start the fork server; return the path of its `python`, which is the usual one until the server is ready."""
    with mock.patch.dict(os.environ, environment() | {"OMP_NUM_THREADS": "1"}, clear=True):
        return str(start_fork_server() / "python")


def nnlo() -> list[str]:
    """Return the command `nnlo` on the fork server."""
    return [python(), "-m", "nnlo_lib.cli"]
