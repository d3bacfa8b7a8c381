"""The tables of a run in a checkpoint: `tables.json` has the rows that the run wrote before the checkpoint.

The tables in `state/` are appended without a flush to disk, so a power failure may leave them short or full of zeros.
"""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

from nnlo_lib.checkpoint.rank_file import WriteReceipt
from nnlo_lib.core.json_text import load_json

TABLES_FILE = "tables.json"
SavedTables = dict[str, list[dict[str, Any]]]  # rows by name of the table


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
