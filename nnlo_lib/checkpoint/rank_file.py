"""One rank's part of a checkpoint: its tensors and progress in one file, and a receipt with the file's checksum."""

import hashlib
import json
import os
import re
from pathlib import Path
from typing import Any, NamedTuple

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

RECEIPT_FILE = "receipt-{}.json"


class RankState(NamedTuple):
    """What a rank goes on from."""

    tensors: dict[str, Tensor]
    progress: dict[str, Any]


class WriteReceipt(NamedTuple):
    """What became of a rank's part: checksum and size, or why there is none."""

    sha256: str = ""
    bytes: int = 0
    error: str = ""


def rank_file_name(rank: int) -> str:
    """Return the name of a rank's file."""
    return f"rank-{rank}.safetensors"


def write_rank_file(folder: Path, rank: int, part: RankState) -> WriteReceipt:
    """Write a rank's file to disk. Raises OSError."""
    path = folder / rank_file_name(rank)
    try:
        save_file(part.tensors, path, {"progress": json.dumps(part.progress)})
    except SafetensorError as error:
        raise _as_os_error(error, path) from error
    with path.open("rb+") as file:
        os.fsync(file.fileno())
        return WriteReceipt(hashlib.file_digest(file, "sha256").hexdigest(), path.stat().st_size)


def read_rank_file(folder: Path, rank: int) -> RankState:
    """Read what `write` wrote; nothing in it is executed."""
    with safe_open(folder / rank_file_name(rank), "pt") as file:
        progress = json.loads(file.metadata()["progress"])
        return RankState({name: file.get_tensor(name) for name in file.keys()}, progress)  # noqa: SIM118


def write_receipt(folder: Path, rank: int, receipt: WriteReceipt) -> None:
    """Tell rank 0, which may be on another host, that a rank's part is there. Raises OSError."""
    path = folder / RECEIPT_FILE.format(rank)
    part = path.with_suffix(".part")
    part.write_text(json.dumps(receipt._asdict()))
    part.replace(path)


def read_receipt(folder: Path, rank: int) -> WriteReceipt | None:
    """Return a rank's receipt if it has come."""
    try:
        return WriteReceipt(**json.loads((folder / RECEIPT_FILE.format(rank)).read_text()))
    except FileNotFoundError:
        return None


def remove_receipts(folder: Path) -> None:
    """Remove the receipts: the manifest says the same."""
    for path in folder.glob(RECEIPT_FILE.format("*")):
        path.unlink()


def is_intact(folder: Path, rank: int, sha256: dict[str, str]) -> bool:
    """Say whether a rank's file is what the manifest's checksum says."""
    name = rank_file_name(rank)
    try:
        with (folder / name).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest() == sha256.get(name)
    except OSError:
        return False


def _as_os_error(error: SafetensorError, path: Path) -> OSError:
    found = re.search(r"(?:I/O error: )?([^:]*) \(os error (\d+)\)", str(error))
    return OSError(int(found[2]), found[1], str(path)) if found else OSError(str(error))
