"""Staging: the copy of a store on the node's own disk, which one process of the node makes and each job checks once."""

import hashlib
import os
import socket
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

from nnlo_lib.core.atomic_file import atomic_write, file_sha256
from nnlo_lib.core.errors import UserError
from nnlo_lib.core.file_lock import UntrustedPathError, open_for_append, private_folder, try_lock
from nnlo_lib.core.logging_setup import get_logger
from nnlo_lib.core.text_format import duration_text, expanded, plural, size_text, unset_variable
from nnlo_lib.data.store.manifest import MANIFEST_FILE, DataManifest, Shard
from nnlo_lib.data.store.shard_copy import copy_shards

STAGING_TIMEOUT_S = 3600.0  # maximum wait for another process of the node that copies the data set
POLL_SECONDS = 0.2
CHECKED_FILE = ".checked"  # names of the jobs that have checked the copy, one a line
MAX_RECORDED_JOBS = 100  # bounds the file; jobs of a node that run at the same time are fewer
logger = get_logger(__name__)


@dataclass(frozen=True)
class StagingJob:
    """The job of a rank that needs the copy.

    Attributes:
        name: name of the job, by which its ranks on a node compare the checksums of an existing copy once; empty:
            every process compares them.
    """

    name: str = ""
    is_reporter: bool = True


def stage_dataset(
    manifest: DataManifest,
    folder: str,
    patience: float = STAGING_TIMEOUT_S,
    job: StagingJob | None = None,
    command: str | None = None,
) -> DataManifest:
    """Copy the data set below `folder` (like $TMPDIR) unless an intact copy exists; return its manifest.

    One process of a node copies while the others wait. The copy is in a folder that only this user can open. If
    another user has prepared or could replace this folder, a warning is logged and `manifest` is returned.

    Args:
        folder: existing folder on the node's own disk; may contain environment variables.
        patience: maximum wait for another process of the node, in seconds.

    Raises UserError if the command fails, the free space does not suffice, a copied shard does not match its
    checksum, `folder` does not exist or is not writable, or the wait exceeds `patience`.
    """
    place, job = node_folder(folder), job or StagingJob()
    try:
        return _staged(manifest, place, patience, job.name, command)
    except UntrustedPathError as error:
        # The copy only saves time: the training continues, but never silently.
        if job.is_reporter:
            logger.warning(
                f"data.stage_to: {error}. Host {socket.gethostname()} reads the data set from {manifest.folder}"
            )
        return manifest


def _staged(
    manifest: DataManifest, place: Path, patience: float, job: str, command: str | None
) -> DataManifest:
    """Copy what is missing below `place`; see `stage_dataset`."""
    # The manifest contains the checksums of all shards, so another conversion gets another folder.
    key = hashlib.sha256((manifest.folder / MANIFEST_FILE).read_bytes()).hexdigest()[:16]
    try:
        target = private_folder(place) / f"{manifest.dataset}-{key}"
    except OSError as error:
        raise UserError(f"data.stage_to: cannot write to {place}: {error.strerror}") from error
    with staging_lock(target, patience):
        missing = unusable_shards(manifest, target, job)
        copy_shards(manifest, missing, target, command)
        record_check(target, job)
    return replace(manifest, folder=target, staged=True)


def node_folder(folder: str) -> Path:
    """Return the existing folder of a path that may contain environment variables. Raises UserError."""
    if variable := unset_variable(folder):
        raise UserError(
            f"data.stage_to: environment variable {variable} is not set on this node; set it, or change data.stage_to"
        )
    path = expanded(folder)
    if not Path(path).is_dir():
        raise UserError(
            f"data.stage_to: folder {path} does not exist on this node; create it, or change data.stage_to"
        )
    return Path(path)


@contextmanager
def staging_lock(target: Path, patience: float) -> Iterator[None]:
    """Hold the lock of the folder; the operating system releases it if the process ends.

    Raises UserError if the folder cannot be written, or another process still holds the lock after `patience` seconds.
    """
    try:
        target.mkdir(parents=True, exist_ok=True)
        # Not truncated before the lock is held: until then, the file names the process that holds it.
        lock = open_for_append(target / ".lock")
    except OSError as error:
        raise UserError(f"data.stage_to: cannot write to {target}: {error.strerror}") from error
    with lock:
        _acquire(lock, target, patience)
        lock.truncate(0)
        lock.write(str(os.getpid()).encode())
        lock.flush()
        yield


def _acquire(lock: IO[bytes], target: Path, patience: float) -> None:
    deadline = time.monotonic() + patience
    while not try_lock(lock, target / ".lock"):
        if time.monotonic() > deadline:
            lock.seek(0)
            raise UserError(
                f"data.stage_to: process {lock.read().decode() or 'unknown'} has been copying to {target} for more than "
                f"{patience:g} s; end the process, or remove data.stage_to"
            )
        time.sleep(POLL_SECONDS)


def unusable_shards(manifest: DataManifest, folder: Path, job: str) -> list[Shard]:
    """Return the shards that the copy in `folder` lacks, or whose size or checksum is wrong.

    Checksums are compared once per job, before its first use of the copy, and always if `job` is empty.
    """
    shards = [shard for part in manifest.splits.values() for shard in part.shards]
    paths = [(shard, folder / shard.file) for shard in shards]
    present = [
        shard
        for shard, path in paths
        if path.is_file() and not path.is_symlink() and path.stat().st_size == shard.bytes
    ]
    damaged = [] if job and job in _checked_jobs(folder) else _damaged(folder, present)
    for shard in damaged:
        logger.warning(f"data.stage_to: {folder / shard.file} differs from the data set; copying it again")
    return [shard for shard in shards if shard not in present or shard in damaged]


def _damaged(folder: Path, shards: Sequence[Shard]) -> list[Shard]:
    """Return the shards whose checksum is wrong; log the time of the comparison."""
    if not shards:
        return []
    started = time.monotonic()
    # The other ranks of the node wait meanwhile, so their cores are free. hashlib releases the interpreter lock.
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as threads:
        checksums = list(threads.map(lambda shard: file_sha256(folder / shard.file), shards))
    size, seconds = sum(shard.bytes for shard in shards), time.monotonic() - started
    logger.info(
        f"data.stage_to: compared the checksums of {plural(len(shards), 'shard')} in {folder} ({size_text(size)}, {duration_text(seconds)})"
    )
    return [shard for shard, checksum in zip(shards, checksums, strict=True) if checksum != shard.sha256]


def record_check(folder: Path, job: str) -> None:
    """Record that the copy is complete and that the job has compared its checksums."""
    jobs = _checked_jobs(folder)
    if job and job not in jobs:
        with atomic_write(folder / CHECKED_FILE) as part:
            part.write_text("".join(f"{each}\n" for each in [*jobs, job][-MAX_RECORDED_JOBS:]))


def _checked_jobs(folder: Path) -> list[str]:
    path = folder / CHECKED_FILE
    return path.read_text(errors="replace").splitlines() if path.is_file() else []
