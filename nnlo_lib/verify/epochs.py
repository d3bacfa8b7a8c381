"""Tables with a row for each epoch, as a run keeps them in `state/`."""

import json
from collections.abc import Sequence
from typing import Any

from nnlo_lib.verify.finished import Finished

Row = dict[str, Any]


class EpochsError(Exception):
    """A table cannot be read, or does not have each epoch once and in order; the message says why."""


def rows_of(run: Finished, name: str) -> list[Row]:
    """Return the rows of state/<name>.jsonl, one for each epoch. Raises EpochsError."""
    path = run.state / f"{name}.jsonl"
    try:
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        fault = _fault([row["epoch"] for row in rows], run.epochs)
    except FileNotFoundError as error:
        raise EpochsError(f"{path} is missing") from error
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise EpochsError(f"{path} is damaged ({error})") from error
    if fault:
        raise EpochsError(f"{path} {fault}")
    return rows


def _fault(found: Sequence[int], epochs: int) -> str:
    wanted = range(1, epochs + 1)
    for missing in (epoch for epoch in wanted if epoch not in found):
        return f"lacks epoch {missing}"
    for repeated in (epoch for epoch in wanted if found.count(epoch) > 1):
        return f"has epoch {repeated} {found.count(repeated)} times"
    for stranger in (epoch for epoch in found if epoch not in wanted):
        return f"has an epoch {stranger}, but {epochs} were trained"
    return "" if list(found) == list(wanted) else "has its epochs out of order"
