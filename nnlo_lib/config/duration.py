"""Times as people write them: `90m`, `2h`, `24:00:00`, `1-12:00:00`; a bare number has the unit of its key."""

import math
import re
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, WithJsonSchema

from nnlo_lib.config.base import raise_config_error

SECONDS_OF_UNIT = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}
_PARTS = re.compile(r"(\d+(?:\.\d+)?)\s*(d|h|min|m|s)\s*")
_CLOCK = re.compile(r"(?:(\d+)-)?(\d+):([0-5]?\d):([0-5]?\d)")  # Slurm's days-hours:minutes:seconds
FORMS = "90m, 2h, 1d, 24:00:00 (hours:minutes:seconds) or 1-12:00:00 (days-hours:minutes:seconds)"


def seconds_of(text: str) -> float | None:
    """Return the seconds of a time such as `90m`, `1h 30m`, `24:00:00` or `1-12:00:00`; None for other text.

    Two numbers, as in `90:00`, are no time: they are minutes and seconds for Slurm, hours and minutes for LSF.
    """
    if found := _CLOCK.fullmatch(text):
        days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
        return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)
    if text and not _PARTS.sub("", text):
        return sum(float(number) * SECONDS_OF_UNIT[unit] for number, unit in _PARTS.findall(text))
    return None


def _minutes(value: Any) -> Any:
    seconds = _read(value, "minutes")
    return value if seconds is None else math.ceil(seconds / 60)


def _hours(value: Any) -> Any:
    seconds = _read(value, "hours")
    return value if seconds is None else seconds / 3600


def _read(value: Any, unit: str) -> float | None:
    if not isinstance(value, str):
        return None
    if (seconds := seconds_of(value.strip())) is None:
        raise_config_error(f"{value!r} is not a time; write a number of {unit}, or {FORMS}")
    return seconds


Minutes = Annotated[
    int, BeforeValidator(_minutes), Field(ge=1),
    WithJsonSchema({"anyOf": [{"type": "integer", "minimum": 1}, {"type": "string"}]}),
]  # fmt: skip
Hours = Annotated[
    float, BeforeValidator(_hours), Field(gt=0),
    WithJsonSchema({"anyOf": [{"type": "number", "exclusiveMinimum": 0}, {"type": "string"}]}),
]  # fmt: skip
