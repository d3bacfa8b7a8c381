"""Staging: copy of the store on the node's own disk."""

import hashlib
import socket
from dataclasses import dataclass, replace
from pathlib import Path

from nnlo_lib.core.errors import UserError
from nnlo_lib.core.logging_setup import get_logger
from nnlo_lib.core.private_folder import UntrustedPathError, private_folder
from nnlo_lib.data.staging.copy_check import record_check, unusable_shards
from nnlo_lib.data.staging.node_folder import node_folder
from nnlo_lib.data.staging.shard_copy import copy_shards
from nnlo_lib.data.staging.staging_lock import STAGING_TIMEOUT_S, staging_lock
from nnlo_lib.data.store.manifest import MANIFEST_FILE, DataManifest

logger = get_logger(__name__)


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
    command: str | None = None,
) -> DataManifest:
    """Copy the data set below `folder` (like $TMPDIR) unless an intact copy exists; return its manifest.

    One process of a node copies while the others wait. The copy is in a folder that only this user can open. If
    another user has prepared or could replace this folder, a warning is logged and `manifest` is returned.

    Args:
        manifest: data set to copy.
        folder: existing folder on the node's own disk; may contain environment variables.
        patience: maximum wait for another process of the node, in seconds.
        job: the job of this rank; None for a process without other ranks.
        command: the user's command that copies a file; None: a plain copy.
    Raises:
        UserError: if the command fails, the free space does not suffice, a copied shard does not match its checksum, `folder` does
            not exist or is not writable, or the wait exceeds `patience`.
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
    """Copy what is missing below `place`.

    Args:
        manifest: data set to copy.
        place: existing folder on the node's own disk.
        patience: maximum wait for another process of the node, in seconds.
        job: name of the job; empty: always compare checksums.
        command: the user's command that copies a file; None: a plain copy.
    """
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
