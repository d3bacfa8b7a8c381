"""JSON texts of files that may be damaged or hostile."""

import json
from typing import Any


def load_json(text: str | bytes) -> Any:
    """Return the values of a JSON text. Raises ValueError if it is not JSON or is nested too deeply."""
    try:
        return json.loads(text)
    except RecursionError as error:  # readers of damaged files catch ValueError
        raise ValueError("the values are nested too deeply") from error
