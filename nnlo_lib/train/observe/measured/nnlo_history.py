"""History of a finished run as JSON in NNLO's format, for scripts that plot NNLO's results."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nnlo_lib.core.atomic_file import atomic_write

# NNLO's keys are world:parent:ring, the ranks of a process in its communicators.
MASTER, WORKER = "0:0:-", "1:1:-"
KERAS_NAMES = {"accuracy": "acc"}  # names of Keras 2, which NNLO's scripts look up


def write_nnlo_history(path: Path, rows: Sequence[Mapping[str, Any]], settings: Mapping[str, Any]) -> None:
    """Write `train_time`, `history` by process and `args` of a run.

    The master has the validation metrics. One worker has the training metrics, means over all workers,
    because nnlo measures them together.

    Args:
        path: file to write.
        rows: rows of the history, one per epoch.
        settings: settings of the run.
    """
    history = {MASTER: _lists(rows, "val_", keeps_prefix=True), WORKER: _lists(rows, "train_")}
    seconds = rows[-1]["seconds"] if rows else 0.0
    with atomic_write(path) as part:
        content = {"train_time": seconds, "history": history, "args": dict(settings)}
        part.write_text(json.dumps(content, indent=1))


def _lists(
    rows: Sequence[Mapping[str, Any]], prefix: str, keeps_prefix: bool = False
) -> dict[str, list[float]]:
    """Return the columns with a prefix by Keras's names, each with the values of the rows that have it.

    Args:
        rows: rows of the history.
        prefix: start of the columns' names.
        keeps_prefix: whether the names keep it.
    """
    columns = dict.fromkeys(column for row in rows for column in row if column.startswith(prefix))
    named = {column: column.removeprefix(prefix) for column in columns}
    return {
        f"{prefix if keeps_prefix else ''}{KERAS_NAMES.get(name, name)}": [
            row[column] for row in rows if column in row
        ]
        for column, name in named.items()
    }
