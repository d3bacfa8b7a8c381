"""Folders below data/: stores, complete or not, and fetched files."""

import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from nnlo_lib.core.errors import UserError
from nnlo_lib.core.file_lock import exclusive_lock
from nnlo_lib.data.fetch.record import FETCH_RECORD_FILE, tree_size
from nnlo_lib.data.identity.store_location import DATA_FOLDER, RAW_FOLDER
from nnlo_lib.data.store.convert import LOCK_FILE
from nnlo_lib.data.store.manifest import MANIFEST_FILE, DataManifest

STORE_NAME = re.compile(r"(hdf5|npz)(-[0-9a-f]{12})?")  # stores of version 0.1 have no key


@dataclass(frozen=True)
class DataFolder:
    """One store or one folder of fetched files.

    Attributes:
        folder: path, relative to the working directory.
        contents: samples of each split, or what the folder holds otherwise.
        bytes: size of all files.
        changed: local time at which the folder was completed; time of the last change without a manifest.
    """

    folder: Path
    contents: str
    bytes: int
    changed: datetime


def list_data_folders() -> Iterator[DataFolder]:
    """Yield the stores and the folders of fetched files, sorted by name."""
    for folder in sorted(DATA_FOLDER.glob("*/*")):
        if not folder.is_dir() or not _is_known(folder):
            continue
        last = folder / (FETCH_RECORD_FILE if _is_raw(folder) else MANIFEST_FILE)
        changed = (last if last.exists() else folder).stat().st_mtime
        yield DataFolder(folder, _contents(folder), tree_size(folder)[1], datetime.fromtimestamp(changed))


def remove_data_folder(folder: Path) -> int:
    """Remove a store or a folder of fetched files; return its size in bytes.

    Raises UserError if the folder is neither, or if a process converts to it.
    """
    inside = folder.resolve().parent.parent == DATA_FOLDER.resolve()
    if not (inside and folder.is_dir() and not folder.is_symlink() and _is_known(folder)):
        raise UserError(
            f"{folder}: not a folder of a store or of fetched files; `nnlo data --stores` lists these folders"
        )
    size = tree_size(folder)[1]
    with exclusive_lock(folder / LOCK_FILE, f"converting to {folder}"):
        # First: without its manifest, a store that is removed only in part is not used.
        (folder / MANIFEST_FILE).unlink(missing_ok=True)
        shutil.rmtree(folder)
    return size


def _is_raw(folder: Path) -> bool:
    return folder.name == RAW_FOLDER or folder.name.startswith(f"{RAW_FOLDER}-")


def _is_known(folder: Path) -> bool:
    return _is_raw(folder) or STORE_NAME.fullmatch(folder.name) is not None


def _contents(folder: Path) -> str:
    if _is_raw(folder):
        return "fetched files"
    if not (folder / MANIFEST_FILE).exists():
        return "incomplete"
    try:
        splits = DataManifest.load(folder).splits
    except UserError:
        return "damaged manifest"
    return ", ".join(f"{name} {split.samples:,}" for name, split in splits.items())
