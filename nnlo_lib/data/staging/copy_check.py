"""Check of an existing copy of a store: which shards have to be copied again, and which jobs have checked it."""

import os
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from nnlo_lib.core.atomic_file import atomic_write
from nnlo_lib.core.logging_setup import get_logger
from nnlo_lib.core.text_format import duration_text, size_text
from nnlo_lib.data.identity.file_checksum import file_sha256
from nnlo_lib.data.store.manifest import DataManifest, Shard

CHECKED_FILE = ".checked"  # names of the jobs that have checked the copy, one a line
MAX_RECORDED_JOBS = 100  # bounds the file; jobs of a node that run at the same time are fewer

logger = get_logger(__name__)


def unusable_shards(manifest: DataManifest, folder: Path, job: str) -> list[Shard]:
    """Return the shards that `folder` lacks, or whose size or checksum is wrong.

    Checksums are compared once per job, before its first use of the copy.

    Args:
        manifest: the data set.
        folder: folder of the copy.
        job: name of the job; empty: always compare checksums.
    """
    shards = [shard for part in manifest.splits.values() for shard in part.shards]
    present = [shard for shard in shards if _has_size(folder, shard)]
    damaged = [] if job and job in _checked_jobs(folder) else _damaged(folder, present)
    for shard in damaged:
        logger.warning(f"data.stage_to: {folder / shard.file} differs from the data set; copying it again")
    return [shard for shard in shards if shard not in present or shard in damaged]


def record_check(folder: Path, job: str) -> None:
    """Record that the copy is complete and that the job has compared its checksums."""
    jobs = _checked_jobs(folder)
    if job and job not in jobs:
        with atomic_write(folder / CHECKED_FILE) as part:
            part.write_text("".join(f"{each}\n" for each in [*jobs, job][-MAX_RECORDED_JOBS:]))


def _checked_jobs(folder: Path) -> list[str]:
    path = folder / CHECKED_FILE
    return path.read_text(errors="replace").splitlines() if path.is_file() else []


def _has_size(folder: Path, shard: Shard) -> bool:
    path = folder / shard.file
    return path.is_file() and not path.is_symlink() and path.stat().st_size == shard.bytes


def _damaged(folder: Path, shards: Sequence[Shard]) -> list[Shard]:
    """Return the shards whose checksum is wrong; log the time of the comparison."""
    if not shards:
        return []
    started = time.monotonic()
    # The other ranks of the node wait meanwhile, so their cores are free. hashlib releases the interpreter lock.
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as threads:
        intact = list(threads.map(partial(_is_intact, folder), shards))
    size, seconds = sum(shard.bytes for shard in shards), time.monotonic() - started
    logger.info(
        f"data.stage_to: compared the checksums of {len(shards)} shards in {folder} ({size_text(size)}, {duration_text(seconds)})"
    )
    return [shard for shard, is_intact in zip(shards, intact, strict=True) if not is_intact]


def _is_intact(folder: Path, shard: Shard) -> bool:
    return file_sha256(folder / shard.file) == shard.sha256
