"""Run `nnlo` in this process for tests of its output, or in a separate process."""

import io
import os
import subprocess
import sys
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path
from unittest.mock import patch

from nnlo_lib import cli

REPOSITORY = Path(__file__).parents[2]
CODE = f"import sys; sys.argv[0] = 'nnlo'; sys.path.insert(0, {str(REPOSITORY)!r}); from nnlo_lib.cli import main; main()"


def nnlo(*arguments: str, folder: Path = REPOSITORY) -> "subprocess.CompletedProcess[str]":
    """Run the command in this process with `folder` as working directory; return status and output."""
    out, err, status = io.StringIO(), io.StringIO(), None
    with (
        chdir(folder),
        redirect_stdout(out),
        redirect_stderr(err),
        patch.object(sys, "argv", ["nnlo", *arguments]),
    ):
        try:
            cli.main()
        except SystemExit as end:
            status = end.code
    return subprocess.CompletedProcess(["nnlo", *arguments], status, out.getvalue(), err.getvalue())


def nnlo_process(*arguments: str, folder: Path = REPOSITORY) -> "subprocess.CompletedProcess[str]":
    """Run the command in a separate process; return status and output."""
    return subprocess.run(
        [sys.executable, "-c", CODE, *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=250,  # seconds; includes the start of the process on a busy machine
        check=False,
    )


def start_nnlo(*arguments: str, folder: Path, terminal: int) -> "subprocess.Popen[bytes]":
    """Start the command in a separate process on a terminal, a file descriptor."""
    return subprocess.Popen(
        [sys.executable, "-c", CODE, *arguments],
        cwd=folder,
        env={**os.environ, "TERM": "xterm-256color"},
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
    )


def refused(done: "subprocess.CompletedProcess[str]") -> str:
    """Return the error message; assert that the command failed with status 2 and printed only this message."""
    assert done.returncode == 2
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    assert done.stderr.startswith("nnlo: error: "), done.stderr
    return done.stderr.removeprefix("nnlo: error: ")
