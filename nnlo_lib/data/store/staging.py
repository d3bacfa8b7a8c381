"""Staging: the copy of a store on the node's own disk, which one process of the node makes and each job checks once."""

import hashlib
import os
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from nnlo_lib.core.atomic_file import atomic_write, file_sha256
from nnlo_lib.core.errors import UserError
from nnlo_lib.core.file_lock import UntrustedPathError, exclusive_lock, private_folder
from nnlo_lib.core.logging_setup import get_logger
from nnlo_lib.core.text_format import duration_text, expanded, plural, size_text, unset_variable
from nnlo_lib.data.store.manifest import MANIFEST_FILE, DataManifest, Shard
from nnlo_lib.data.store.shard_copy import copy_shards

STAGING_TIMEOUT_S = 3600.0  # maximum wait for another process of the node that copies the data set
CHECKED_FILE = ".checked"  # names of the jobs that have checked the copy, one a line
MAX_RECORDED_JOBS = 100  # bounds the file; jobs of a node that run at the same time are fewer
logger = get_logger(__name__)


@dataclass(frozen=True)
class StagingJob:
    """The job of a rank that needs the copy."""

    # name of the job, by which its ranks on a node compare the checksums of an existing copy once; empty: every process
    # compares them
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

    `folder` is on the node's own disk and may contain environment variables; `patience` is in seconds. Raises UserError if the
    command fails, the free space does not suffice, a copied shard does not match its checksum, `folder` does not exist or is not
    writable, or the wait exceeds `patience`.
    """
    if variable := unset_variable(folder):
        raise UserError(
            f"data.stage_to: environment variable {variable} is not set on this node; set it, or change data.stage_to"
        )
    place, job = Path(expanded(folder)), job or StagingJob()
    if not place.is_dir():
        raise UserError(
            f"data.stage_to: folder {place} does not exist on this node; create it, or change data.stage_to"
        )
    # The manifest contains the checksums of all shards, so another conversion gets another folder.
    key = hashlib.sha256((manifest.folder / MANIFEST_FILE).read_bytes()).hexdigest()[:16]
    try:
        target = private_folder(place) / f"{manifest.dataset}-{key}"
        with exclusive_lock(target / ".lock", f"copying a data set to {target}", patience, is_silent=True):
            checked = target / CHECKED_FILE
            jobs = checked.read_text(errors="replace").splitlines() if checked.is_file() else []
            unusable = _unusable_shards(manifest, target, bool(job.name) and job.name in jobs)
            copy_shards(manifest, unusable, target, command)
            if job.name and job.name not in jobs:
                with atomic_write(checked) as part:
                    part.write_text("".join(f"{each}\n" for each in [*jobs, job.name][-MAX_RECORDED_JOBS:]))
    except UntrustedPathError as error:
        # The copy only saves time: the training continues, but never silently.
        if job.is_reporter:
            logger.warning(
                f"data.stage_to: {error}. Host {socket.gethostname()} reads the data set from {manifest.folder}"
            )
        return manifest
    except OSError as error:
        raise UserError(f"data.stage_to: cannot write to {place}: {error.strerror}") from error
    return replace(manifest, folder=target, staged=True)


def _unusable_shards(manifest: DataManifest, folder: Path, is_checked: bool) -> list[Shard]:
    """Return the shards that the copy in `folder` lacks, or whose size is wrong, or the checksum unless the job checked it."""
    shards = {folder / shard.file: shard for part in manifest.splits.values() for shard in part.shards}
    present = [
        path
        for path, shard in shards.items()
        if path.is_file() and not path.is_symlink() and path.stat().st_size == shard.bytes
    ]
    missing = [shard for path, shard in shards.items() if path not in present]
    if not present or is_checked:
        return missing
    started = time.monotonic()
    # The other ranks of the node wait meanwhile, so their cores are free. hashlib releases the interpreter lock.
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as threads:
        checksums = dict(zip(present, threads.map(file_sha256, present), strict=True))
    size, seconds = sum(shards[path].bytes for path in present), time.monotonic() - started
    logger.info(
        f"data.stage_to: compared the checksums of {plural(len(present), 'shard')} in {folder} ({size_text(size)}, {duration_text(seconds)})"
    )
    damaged = [path for path, checksum in checksums.items() if checksum != shards[path].sha256]
    for path in damaged:
        logger.warning(f"data.stage_to: {path} differs from the data set; copying it again")
    return [*missing, *(shards[path] for path in damaged)]
