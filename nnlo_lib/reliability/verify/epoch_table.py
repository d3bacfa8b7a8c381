"""Reader of the tables in `state/` that have one row per epoch."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nnlo_lib.core.json_text import load_json

EpochRow = dict[str, Any]


class EpochTableError(Exception):
    """A table is unreadable, or does not contain each epoch once and in order; the message gives the reason."""


def read_epoch_table(path: Path, epochs: int) -> list[EpochRow]:
    """Return the rows of a table in `state/`, one for each of `epochs` epochs. Raises EpochTableError."""
    try:
        rows = [load_json(line) for line in path.read_text().splitlines()]
        fault = _completeness_fault([row["epoch"] for row in rows], epochs)
    except FileNotFoundError as error:
        raise EpochTableError(f"{path} is missing") from error
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise EpochTableError(f"{path} is damaged ({error})") from error
    if fault:
        raise EpochTableError(f"{path} {fault}")
    return rows


def _completeness_fault(found: Sequence[int], epochs: int) -> str:
    expected = range(1, epochs + 1)
    for missing in (epoch for epoch in expected if epoch not in found):
        return f"has no epoch {missing}"
    for repeated in (epoch for epoch in expected if found.count(epoch) > 1):
        return f"contains epoch {repeated} {found.count(repeated)} times"
    for unexpected in (epoch for epoch in found if epoch not in expected):
        return f"contains epoch {unexpected}, but {epochs} epochs were trained"
    # Here each epoch occurs once; only the order may be wrong.
    return "" if list(found) == list(expected) else "has its epochs out of order"
