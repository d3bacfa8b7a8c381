"""Partition file of a run, `partition.npz`: the samples of each worker and of the validation."""

import io
from collections.abc import Sequence
from pathlib import Path
from zipfile import ZipFile

import numpy as np

from nnlo_lib.core.atomic_file import atomic_write
from nnlo_lib.core.errors import UserError
from nnlo_lib.data.readers import Array, Indices
from nnlo_lib.data.store.shard import write_shard


def save_partition(path: Path, validation: Indices, parts: Sequence[Indices]) -> None:
    """Write the validation samples and the samples of each worker; equal arguments give equal bytes.

    The arrays `worker-00000`, ..., `validation` (samples,) int64 are indices in the training split. All
    workers share a single part.

    Args:
        path: file to write.
        validation: validation samples, (samples,).
        parts: training samples of each worker, (samples,); a single part is shared by all workers.
    """
    ids = (each.astype(np.int64) for each in (*parts, validation))
    with atomic_write(path) as part_file:
        write_shard(part_file, "npz", dict(zip(_names(len(parts)), ids, strict=True)))


def load_partition(path: Path) -> tuple[Indices, list[Indices]]:
    """Return (validation, parts) as saved. Raises UserError if the file is missing or damaged."""
    try:
        with ZipFile(path) as archive:
            members = archive.namelist()
            if members != [f"{name}.npy" for name in _names(len(members) - 1)]:
                raise ValueError("its arrays are not worker-00000, ..., validation")
            *parts, validation = (_array(archive.read(member)) for member in members)
    # zipfile raises RuntimeError if a damaged flag makes a member look encrypted.
    except Exception as error:  # zipfile and numpy raise many types of exceptions for damaged files
        raise UserError(f"{path}: not the partition of a run ({error}); train the run again") from error
    return validation, parts


def check_cover(samples: int, validation: Indices, parts: Sequence[Indices]) -> None:
    """Raise ValueError unless each of the samples 0..samples-1 is in exactly one of validation and parts.

    Args:
        samples: number of samples of the training split.
        validation: validation samples, (samples,).
        parts: training samples of each worker, (samples,).
    """
    ids: Array = np.concatenate([validation, *parts])
    for invalid in ids[(ids < 0) | (ids >= samples)][:1]:
        raise ValueError(f"the partition contains sample {invalid}, which is not in 0..{samples - 1}")
    times = np.bincount(ids, minlength=samples)
    for missing in np.flatnonzero(times == 0)[:1]:
        raise ValueError(f"the partition lacks {np.sum(times == 0)} samples, the first is {missing}")
    for repeated in np.flatnonzero(times > 1)[:1]:
        named = zip(_names(len(parts)), (*parts, validation), strict=True)
        owners = [name for name, each in named if repeated in each]
        raise ValueError(
            f"the partition contains {np.sum(times > 1)} samples more than once, the first is {repeated} in {', '.join(owners)}"
        )


def _names(parts: int) -> list[str]:
    """Return the names of the arrays; validation is last, so that a truncated ZIP directory is detected."""
    return [*(f"worker-{number:05d}" for number in range(parts)), "validation"]


def _array(content: bytes) -> Array:
    """Parse an npy file whose checksum ZipFile.read has verified; np.load of the NPZ would not verify it."""
    array: Array = np.load(io.BytesIO(content), allow_pickle=False)
    return array
