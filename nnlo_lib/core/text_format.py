"""Numbers, sizes, durations, tables and times as text, and texts of the user: paths with variables, files of editors.

Imports nothing of nnlo.
"""

import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime

BYTE_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")
MISSING = "–"
VARIABLE = re.compile(r"\$\{?(\w+)")
UTF_16 = (b"\xff\xfe", b"\xfe\xff")  # first bytes of what PowerShell writes


def number(value: float | None, digits: int = 4) -> str:
    """Write a number with `digits` significant digits and thousands separators."""
    if value is None or not math.isfinite(value):
        return MISSING
    return f"{value:,.{decimals(value, digits)}f}" if value == 0 or abs(value) >= 1e-4 else f"{value:.2e}"


def metrics_text(found: Mapping[str, object]) -> str:
    """Write the loss and the metrics of an evaluation: its values that are floats, or null if undefined, by name."""
    figures = {
        name: value
        for name, value in found.items()
        if isinstance(value, float) or (value is None and name != "classes")
    }
    return ", ".join(f"{name} {number(value)}" for name, value in sorted(figures.items()))


def decimals(value: float, digits: int) -> int:
    """Return the number of decimals with which a number has `digits` significant digits."""
    leading = float(f"{abs(value):.{digits - 1}e}")  # rounded first, as 0.999 to two digits is 1.0
    return max(0, digits - 1 - math.floor(math.log10(leading))) if value else 0


def size_text(count: float) -> str:
    """Write a number of bytes in the largest decimal unit in which it is at least one."""
    if not math.isfinite(count):
        return MISSING
    # Rounded before the unit is chosen, because 999.7 bytes are 1.00 kB.
    shown = float(f"{round(count):.3g}")
    power = min(len(BYTE_UNITS) - 1, int(math.log10(shown) / 3)) if shown else 0
    return f"{number(count / 1000**power, 3) if power else round(count)} {BYTE_UNITS[power]}"


def duration_text(seconds: float) -> str:
    """Write a duration: below 10 minutes in seconds, else in hours and minutes."""
    if not math.isfinite(seconds) or seconds < 600:
        return f"{number(seconds, 3)} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min"


def sample_shape_text(shape: Sequence[int]) -> str:
    """Write the shape of a sample or a weight: `3 x 32 x 32`, `(12,)` or `one number`."""
    return f"({shape[0]},)" if len(shape) == 1 else " x ".join(map(str, shape)) or "one number"


def table_lines(rows: Sequence[Sequence[str]], left: Sequence[int] = (0,)) -> Iterator[str]:
    """Yield the lines of a table; the columns `left` are aligned to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (
            cell.ljust(width) if column in left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        yield "  ".join(cells).rstrip()


def timestamp(seconds: float | None = None) -> str:
    """Return a time in ISO 8601 with milliseconds, in UTC.

    `seconds` count from 1970; None is now. Whole seconds would not do: an attempt that failed within one second would
    seem to end before its start.
    """
    moment = datetime.now(UTC) if seconds is None else datetime.fromtimestamp(seconds, UTC)
    return moment.isoformat(timespec="milliseconds")


def plural(count: int, noun: str) -> str:
    """Write a count with its noun: 1 seed, 3 seeds."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def expanded(path: str) -> str:
    """Return a path without `~` and without variables that are set; `$` in the name of an existing file stays."""
    return os.path.expanduser(path if os.path.lexists(path) else os.path.expandvars(path))


def unset_variable(path: str) -> str | None:
    """Return the first variable in a path that is empty or not set, or None."""
    names = () if os.path.lexists(path) else VARIABLE.findall(path)
    return next((name for name in names if not os.environ.get(name)), None)


def path_remedy(path: str, otherwise: str) -> str:
    """Return what to do about a path that leads to nothing: set its variable or, if there is none, something else."""
    name = unset_variable(path)
    return f"; environment variable {name} is not set; set it, or write the path" if name else otherwise


def decoded(text: bytes, errors: str = "strict") -> str:
    """Return a text in UTF-8 or, with its mark, UTF-16, with the line ends of Unix. Raises UnicodeDecodeError."""
    found = text.decode("utf-16" if text.startswith(UTF_16) else "utf-8-sig", errors)
    return found.replace("\r\n", "\n")


def inline_yaml(value: object) -> str:
    """Return a value as YAML in one line."""
    import yaml

    # PyYAML ends a single scalar with the line `...`.
    text: str = yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=10_000)
    return text.removesuffix("\n").removesuffix("\n...")
