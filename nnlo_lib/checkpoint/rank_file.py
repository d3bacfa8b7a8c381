"""Files inside a checkpoint: tensors and progress of each rank with a receipt of its checksum, and the run's tables.

The tables in `state/` are appended without a flush to disk, so a power failure may leave them short or full of zeros.
"""

import hashlib
import json
import os
import re
from pathlib import Path
from typing import Any, NamedTuple

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from nnlo_lib.core.atomic_file import load_json

RECEIPT_FILE = "receipt-{}.json"
TABLES_FILE = "tables.json"
SavedTables = dict[str, list[dict[str, Any]]]  # rows by name of the table


class RankState(NamedTuple):
    """The state from which a rank resumes."""

    tensors: dict[str, Tensor]
    progress: dict[str, Any]


class WriteReceipt(NamedTuple):
    """Outcome of writing a rank file: checksum and size, or the error."""

    sha256: str = ""
    bytes: int = 0
    error: str = ""


def rank_file_name(rank: int) -> str:
    """Return the name of a rank file."""
    return f"rank-{rank}.safetensors"


def write_rank_file(folder: Path, rank: int, part: RankState) -> WriteReceipt:
    """Write a rank file to disk.

    Args:
        folder: folder of the unfinished checkpoint.
        part: state of this rank; its tensors are on the CPU.

    Raises:
        OSError: if the file cannot be written.
    """
    path = folder / rank_file_name(rank)
    try:
        save_file(part.tensors, path, {"progress": json.dumps(part.progress)})
    except SafetensorError as error:
        raise _as_os_error(error, path) from error
    # safetensors does not flush the file to disk, and its writer returns no handle.
    with path.open("rb+") as file:
        os.fsync(file.fileno())
        return WriteReceipt(hashlib.file_digest(file, "sha256").hexdigest(), path.stat().st_size)


def _as_os_error(error: SafetensorError, path: Path) -> OSError:
    # safetensors raises its own exception for I/O errors and reports the errno only in the message.
    found = re.search(r"(?:I/O error: )?([^:]*) \(os error (\d+)\)", str(error))
    return OSError(int(found[2]), found[1], str(path)) if found else OSError(str(error))


def read_rank_file(folder: Path, rank: int) -> RankState:
    """Read a rank file that `write_rank_file` wrote; nothing in it is executed."""
    with safe_open(folder / rank_file_name(rank), "pt") as file:
        progress = load_json(file.metadata()["progress"])
        return RankState({name: file.get_tensor(name) for name in file.keys()}, progress)  # noqa: SIM118


def write_receipt(folder: Path, rank: int, receipt: WriteReceipt) -> None:
    """Write the receipt of a rank file for rank 0, which may be on another host.

    Raises:
        OSError: if the receipt cannot be written.
    """
    path = folder / RECEIPT_FILE.format(rank)
    part = path.with_suffix(".part")
    # Rank 0 polls for the receipt and must not read an incomplete one.
    part.write_text(json.dumps(receipt._asdict()))
    part.replace(path)


def read_receipt(folder: Path, rank: int) -> WriteReceipt | None:
    """Return a rank's receipt, or None if it has not arrived."""
    try:
        return WriteReceipt(**load_json((folder / RECEIPT_FILE.format(rank)).read_text()))
    except FileNotFoundError:
        return None


def remove_receipts(folder: Path) -> None:
    """Remove the receipts; the manifest holds the same data."""
    for path in folder.glob(RECEIPT_FILE.format("*")):
        path.unlink()


def is_intact(path: Path, sha256: str | None) -> bool:
    """Return True if a file matches its checksum in the manifest; False if it is missing or unreadable."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest() == sha256
    except OSError:
        return False


def write_tables(folder: Path, tables: SavedTables) -> WriteReceipt:
    """Write the rows of all tables to disk. Raises OSError."""
    content = json.dumps(tables).encode()
    with (folder / TABLES_FILE).open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    return WriteReceipt(hashlib.sha256(content).hexdigest(), len(content))


def read_tables(folder: Path) -> SavedTables:
    """Return the rows of all tables."""
    return dict(load_json((folder / TABLES_FILE).read_text()))
