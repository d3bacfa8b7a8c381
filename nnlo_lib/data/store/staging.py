"""Staging: copy of the store on the node's own disk."""

import fcntl
import hashlib
import os
import re
import shutil
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

from nnlo_lib.core.atomic_file import atomic_write
from nnlo_lib.core.errors import UserError
from nnlo_lib.core.logging_setup import get_logger
from nnlo_lib.core.private_folder import UntrustedPathError, private_folder
from nnlo_lib.core.regular_file import open_for_append
from nnlo_lib.data.store.copy_check import record_check, unusable_shards
from nnlo_lib.data.store.manifest import MANIFEST_FILE, DataManifest, Shard

logger = get_logger(__name__)

CHUNK_BYTES = 1 << 22
FREE_SPACE_FACTOR = 1.05  # required free space relative to the bytes to copy
STAGING_TIMEOUT_S = 3600.0  # maximum wait for another process of the node that copies the data set
POLL_SECONDS = 0.2


@dataclass(frozen=True)
class StagingJob:
    """The job of a rank that needs the copy.

    Attributes:
        name: name of the job, by which its ranks on a node compare the checksums of an existing copy once; empty:
            every process compares them.
        is_reporter: whether this rank writes the warnings of its node.
    """

    name: str = ""
    is_reporter: bool = True


def stage_dataset(
    manifest: DataManifest,
    folder: str,
    patience: float = STAGING_TIMEOUT_S,
    job: StagingJob | None = None,
) -> DataManifest:
    """Copy the data set below `folder` (like $TMPDIR) unless an intact copy exists; return its manifest.

    One process of a node copies while the others wait. The copy is in a folder that only this user can open. If
    another user has prepared or could replace this folder, a warning is logged and `manifest` is returned.

    Args:
        manifest: data set to copy.
        folder: existing folder on the node's own disk; may contain environment variables.
        patience: maximum wait for another process of the node, in seconds.
        job: the job of this rank; None for a process without other ranks.
    Raises:
        UserError: if the free space does not suffice, a copied shard does not match its checksum, `folder` does
            not exist or is not writable, or the wait exceeds `patience`.
    """
    place, job = _expanded(folder), job or StagingJob()
    try:
        return _staged(manifest, place, patience, job.name)
    except UntrustedPathError as error:
        # The copy only saves time: the training continues, but never silently.
        if job.is_reporter:
            logger.warning(
                f"data.stage_to: {error}. Host {socket.gethostname()} reads the data set from {manifest.folder}"
            )
        return manifest


def _staged(manifest: DataManifest, place: Path, patience: float, job: str) -> DataManifest:
    # The manifest contains the checksums of all shards, so another conversion gets another folder.
    key = hashlib.sha256((manifest.folder / MANIFEST_FILE).read_bytes()).hexdigest()[:16]
    try:
        target = private_folder(place) / f"{manifest.dataset}-{key}"
    except OSError as error:
        raise UserError(f"data.stage_to: cannot write to {place}: {error.strerror}") from error
    with _staging_lock(target, patience):
        _clear_unfinished(target)
        missing = unusable_shards(manifest, target, job)
        _refuse_without_room(missing, target)
        for shard in missing:
            _copy(manifest, shard, target / shard.file)
        record_check(target, job)
    return replace(manifest, folder=target, staged=True)


def _expanded(folder: str) -> Path:
    for variable in re.findall(r"\$\{?(\w+)", folder):
        if not os.environ.get(variable):
            raise UserError(
                f"data.stage_to: environment variable {variable} is not set on this node; set it, or change data.stage_to"
            )
    path = os.path.expanduser(os.path.expandvars(folder))
    if not Path(path).is_dir():
        raise UserError(
            f"data.stage_to: folder {path} does not exist on this node; create it, or change data.stage_to"
        )
    return Path(path)


def _clear_unfinished(target: Path) -> None:
    """Remove the partial files of a killed process; safe because only the holder of the lock writes."""
    for part in target.rglob(".*.part"):
        part.unlink()


def _refuse_without_room(missing: list[Shard], target: Path) -> None:
    wanted, free = FREE_SPACE_FACTOR * sum(shard.bytes for shard in missing), shutil.disk_usage(target).free
    if wanted > free:
        raise UserError(
            f"data.stage_to: {target.parent} has {free / 1e9:.2f} GB free, but the copy needs {wanted / 1e9:.2f} GB; free "
            f"some disk space, or remove data.stage_to"
        )


def _copy(manifest: DataManifest, shard: Shard, path: Path) -> None:
    """Copy one shard and compute its checksum; the copy gets its final name only if the checksum is right.

    Args:
        manifest: data set that contains the shard.
        shard: shard to copy.
        path: final path of the copy.
    """
    digest = hashlib.sha256()
    # `copy` is closed, and so complete, before atomic_write renames it. An error in this block removes it.
    with atomic_write(path) as part, manifest.path(shard).open("rb") as source, part.open("wb") as copy:
        while chunk := source.read(CHUNK_BYTES):
            digest.update(chunk)
            copy.write(chunk)
        if digest.hexdigest() != shard.sha256:
            raise manifest.damaged_shard_error(shard, "the checksum differs from the manifest")


@contextmanager
def _staging_lock(target: Path, patience: float) -> Iterator[None]:
    """Hold the lock of the folder; the operating system releases it if the process ends."""
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
    while True:
        try:
            return fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                lock.seek(0)
                raise UserError(
                    f"data.stage_to: process {lock.read().decode() or 'unknown'} has been copying to {target} for more than "
                    f"{patience:g} s; end the process, or remove data.stage_to"
                ) from None
            time.sleep(POLL_SECONDS)
