"""JSON texts of files that may be damaged or hostile."""

import json
from collections.abc import Iterator
from typing import Any


def load_json(text: str | bytes) -> Any:
    """Return the values of a JSON text. Raises ValueError if it is not JSON or is nested too deeply."""
    try:
        return json.loads(text)
    except RecursionError as error:  # readers of damaged files catch ValueError
        raise ValueError("the values are nested too deeply") from error


def differences(recorded: Any, current: Any, key: str = "") -> Iterator[str]:
    """Yield one message per difference of two JSON values, with its dotted key; a missing value is null.

    Args:
        recorded: earlier value.
        current: present value.
        key: dotted key of both values; empty at the top.
    """
    if isinstance(recorded, dict) and isinstance(current, dict):
        for name in sorted({*recorded, *current}):
            yield from differences(recorded.get(name), current.get(name), f"{key}.{name}" if key else name)
    elif recorded != current:
        yield f"{key} was {json.dumps(recorded)} and is {json.dumps(current)}"
