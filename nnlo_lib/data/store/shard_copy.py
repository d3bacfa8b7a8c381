"""Copies of shards with their checksums compared, plain or by the user's command (`data.stage_command`)."""

import os
import re
import shlex
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

from nnlo_lib.core.atomic_file import atomic_write, file_sha256
from nnlo_lib.core.errors import UserError
from nnlo_lib.core.logging_setup import get_logger
from nnlo_lib.core.secrets import resolve, unresolve
from nnlo_lib.core.text_format import expanded, size_text
from nnlo_lib.data.store.manifest import DataManifest, Shard

COPY_TIMEOUT_S = 1800.0  # one shard; other ranks of the node wait STAGING_TIMEOUT_S for all shards
FREE_SPACE_FACTOR = 1.05  # required free space relative to the bytes to copy
LAST_LINES = 5  # of the command's output, in an error
END = "correct data.stage_command, or remove it for a plain copy"
logger = get_logger(__name__)


def copy_shards(
    manifest: DataManifest, shards: Sequence[Shard], target: Path, command: str | None = None
) -> None:
    """Copy shards into the folder `target`, whose lock the caller holds; without a command, as plain copies.

    Raises UserError if the free space does not suffice, the command fails, or a shard does not match its checksum.
    """
    # The partial files of a killed process; only the holder of the lock writes.
    for part in target.rglob(".*.part"):
        part.unlink()
    wanted, free = FREE_SPACE_FACTOR * sum(shard.bytes for shard in shards), shutil.disk_usage(target).free
    if wanted > free:
        raise UserError(
            f"data.stage_to: {target.parent} has {size_text(free)} free, but the copy needs {size_text(wanted)}; free "
            f"some disk space, or remove data.stage_to"
        )
    for shard in shards:
        # The copy gets its final name only if the checksum is right.
        with atomic_write(target / shard.file) as part:
            if command:
                run_copy_command(command, manifest.folder / shard.file, part)
            else:
                shutil.copyfile(manifest.path(shard), part)
            if file_sha256(part) != shard.sha256:
                raise (
                    UserError(
                        f"data.stage_command: the copy of {manifest.folder / shard.file} has another checksum than the "
                        "manifest; check that the command copies this file, and the file itself: nnlo data verify"
                    )
                    if command
                    else manifest.damaged_shard_error(shard, "the checksum differs from the manifest")
                )


def run_copy_command(command: str, source: Path, target: Path, timeout_s: float = COPY_TIMEOUT_S) -> None:
    """Copy a file by a command, in which {source} and {target} stand for absolute paths; no shell is involved.

    After `timeout_s`, the command and its children are killed.

    Raises UserError if the command cannot start, fails, takes too long or writes no file.
    """
    paths = {"{source}": str(source.absolute()), "{target}": str(target.absolute())}

    def filled(word: str) -> str:
        return re.sub("{source}|{target}", lambda found: paths[found[0]], word)

    given = shlex.split(command)
    words = [filled(word) for word in given]  # for messages, without the values of variables
    logger.debug(f"data.stage_command: {shlex.join(words)}")
    # A file and not a pipe: a process that the command leaves behind could keep a pipe open.
    with tempfile.TemporaryFile() as output:
        used = [filled(expanded(resolve(word, "data.stage_command"))) for word in given]
        reason = _run(used, output, timeout_s)
        if not reason and not target.is_file():
            reason = "ended with status 0, but wrote no file"
        if reason:
            output.seek(0)
            lines = output.read().decode(errors="replace").splitlines()[-LAST_LINES:]
            printed = unresolve(f": {' | '.join(lines)}" if lines else ", without output", command)
            raise UserError(f"data.stage_command: '{shlex.join(words)}' {reason}{printed}; {END}")


def _run(words: list[str], output: IO[bytes], timeout_s: float) -> str:
    """Run a command with its output and errors in a file; return why it failed, or an empty string."""
    try:
        process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, process_group=0
        )
    except OSError as error:
        return f"cannot start: {error.strerror}"
    try:
        status = process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        return f"took more than {timeout_s:g} s"
    finally:
        # The command and the processes that it started, if they still run.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return f"ended with status {status}" if status else ""
