"""Files inside a checkpoint: tensors and progress of each rank with a receipt of its checksum, and the run's tables.

The tables in `state/` are appended without a flush to disk, so a power failure may leave them short or full of zeros.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import google_crc32c
import numpy as np
import torch
from safetensors import safe_open
from torch import Tensor

from nnlo_lib.core.atomic_file import load_json

RECEIPT_FILE = "receipt-{}.json"
TABLES_FILE = "tables.json"
OF_RANK_0 = "of rank 0"  # key of the header: names of tensors that are in the file of rank 0 only
CHUNK_BYTES = 1 << 20  # hashed while it is in the cache of the processor
# Names of types in safetensors files, in the order of their tensors: larger ones first, so that all are aligned.
TYPE_NAMES = {
    torch.uint64: "U64", torch.int64: "I64", torch.float64: "F64", torch.complex64: "C64", torch.float32: "F32",
    torch.uint32: "U32", torch.int32: "I32", torch.bfloat16: "BF16", torch.float16: "F16", torch.uint16: "U16",
    torch.int16: "I16", torch.float8_e4m3fn: "F8_E4M3", torch.float8_e5m2: "F8_E5M2", torch.int8: "I8",
    torch.uint8: "U8", torch.bool: "BOOL",
}  # fmt: skip
SavedTables = dict[str, list[dict[str, Any]]]  # rows by name of the table


class RankState(NamedTuple):
    """The state from which a rank resumes."""

    tensors: dict[str, Tensor]
    progress: dict[str, Any]
    # names of tensors that have the same bits on all ranks, and are written by rank 0 only
    common: tuple[str, ...] = ()


class WriteReceipt(NamedTuple):
    """Outcome of writing a rank file: checksum and size, or the error; and CRC-32C of each common tensor, by name."""

    sha256: str = ""
    bytes: int = 0
    error: str = ""
    common: Mapping[str, int] = {}


def rank_file_name(rank: int) -> str:
    """Return the name of a rank file."""
    return f"rank-{rank}.safetensors"


def write_rank_file(folder: Path, rank: int, part: RankState) -> WriteReceipt:
    """Write a rank file to disk, in the format of safetensors; hash each chunk when it is written.

    Ranks other than 0 leave the common tensors out; the header names them.

    safetensors' own writer copies all tensors and would be followed by a read for the checksum, which together cost a
    training on busy cores three times as much time (benchmarks/checkpoint.py). The tensors of `part` are on the CPU.
    """
    types = list(TYPE_NAMES)
    left_out = part.common if rank else ()
    own = [item for item in part.tensors.items() if item[0] not in left_out]
    tensors = sorted(own, key=lambda item: (types.index(item[1].dtype), item[0]))
    header: dict[str, Any] = {"__metadata__": {"progress": json.dumps(part.progress)}}
    if left_out:
        header["__metadata__"][OF_RANK_0] = json.dumps(left_out)
    size = 0
    for name, tensor in tensors:
        span = [size, size := size + tensor.nbytes]
        header[name] = {"dtype": TYPE_NAMES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": span}
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    digest = hashlib.sha256()
    with (folder / rank_file_name(rank)).open("wb", buffering=0) as file:
        head = memoryview(len(text).to_bytes(8, "little") + text)
        for content in (head, *(_bytes_of(tensor) for _, tensor in tensors)):
            for start in range(0, len(content), CHUNK_BYTES):
                chunk = content[start : start + CHUNK_BYTES]
                digest.update(chunk)
                while chunk:  # a call may write less than it got, for example before the disk is full
                    chunk = chunk[file.write(chunk) :]
        os.fsync(file.fileno())
        common = {name: _crc(_bytes_of(part.tensors[name])) for name in part.common}
        return WriteReceipt(digest.hexdigest(), file.tell(), common=common)


def _crc(content: memoryview) -> int:
    """Return the CRC-32C, an eighth of the work of a SHA-256; a call holds the lock of the interpreter for a chunk."""
    crc = 0
    for start in range(0, len(content), CHUNK_BYTES):
        # The library takes an array, but no memoryview of memory that can be written.
        crc = google_crc32c.extend(crc, np.asarray(content[start : start + CHUNK_BYTES]))
    return crc


def _bytes_of(tensor: Tensor) -> memoryview:
    return tensor.contiguous().view(-1).view(torch.uint8).numpy().data


def read_rank_file(folder: Path, rank: int) -> RankState:
    """Read the state that `write_rank_file` wrote, common tensors included; nothing in the files is executed."""
    with safe_open(folder / rank_file_name(rank), "pt") as file:
        metadata = file.metadata()
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    common = load_json(metadata.get(OF_RANK_0, "[]"))
    if common:
        with safe_open(folder / rank_file_name(0), "pt") as file:
            tensors |= {name: file.get_tensor(name) for name in common}
    return RankState(tensors, load_json(metadata["progress"]), tuple(common))


def write_receipt(folder: Path, rank: int, receipt: WriteReceipt) -> None:
    """Write the receipt of a rank file for rank 0, which may be on another host."""
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
