"""A point as the settings that it changes."""

from functools import reduce
from typing import Any

from nnlo_lib.config import merge
from nnlo_lib.search.trial import Point


def nested(point: Point) -> dict[str, Any]:
    """Turn `{a.b: 1}` into `{a: {b: 1}}`."""
    return reduce(merge, (_nested(key.split("."), value) for key, value in point.items()), {})


def _nested(path: list[str], value: Any) -> Any:
    return {path[0]: _nested(path[1:], value)} if path else value
