"""Copies of shards with their checksums compared."""

import hashlib
import shutil
from collections.abc import Sequence
from pathlib import Path

from nnlo_lib.core.atomic_file import atomic_write
from nnlo_lib.core.errors import UserError
from nnlo_lib.core.text_format import size_text
from nnlo_lib.data.identity.file_checksum import file_sha256
from nnlo_lib.data.staging.copy_command import run_copy_command
from nnlo_lib.data.store.manifest import DataManifest, Shard

CHUNK_BYTES = 1 << 22
FREE_SPACE_FACTOR = 1.05  # required free space relative to the bytes to copy


def copy_shards(
    manifest: DataManifest, shards: Sequence[Shard], target: Path, command: str | None = None
) -> None:
    """Copy shards into `target`, whose lock the caller holds.

    Args:
        manifest: data set that contains the shards.
        shards: shards to copy.
        target: folder of the copies.
        command: the user's command that copies a file; None: a plain copy.
    Raises:
        UserError: if the free space does not suffice, the command fails, or a shard does not match its checksum.
    """
    _clear_unfinished(target)
    _refuse_without_room(shards, target)
    for shard in shards:
        if command:
            _copy_by(command, manifest, shard, target / shard.file)
        else:
            _copy(manifest, shard, target / shard.file)


def _clear_unfinished(target: Path) -> None:
    """Remove the partial files of a killed process; safe because only the holder of the lock writes."""
    for part in target.rglob(".*.part"):
        part.unlink()


def _refuse_without_room(missing: Sequence[Shard], target: Path) -> None:
    wanted, free = FREE_SPACE_FACTOR * sum(shard.bytes for shard in missing), shutil.disk_usage(target).free
    if wanted > free:
        raise UserError(
            f"data.stage_to: {target.parent} has {size_text(free)} free, but the copy needs {size_text(wanted)}; free "
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


def _copy_by(command: str, manifest: DataManifest, shard: Shard, path: Path) -> None:
    """Copy one shard by a command; the copy gets its final name only if the checksum is right.

    Args:
        command: the user's command.
        manifest: data set that contains the shard.
        shard: shard to copy.
        path: final path of the copy.
    """
    with atomic_write(path) as part:
        run_copy_command(command, manifest.folder / shard.file, part)
        if file_sha256(part) != shard.sha256:
            raise UserError(
                f"data.stage_command: the copy of {manifest.folder / shard.file} has another checksum than the manifest; "
                "check that the command copies this file, and the file itself: nnlo data verify"
            )
