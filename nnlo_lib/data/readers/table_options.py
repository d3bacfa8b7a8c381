"""Keys of `data.reader` for tables, and the choice of columns by names and patterns."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from fnmatch import fnmatchcase
from typing import Any, Literal

from nnlo_lib.data.readers.similar_names import composed

WHERE = "data.reader"
MISSING = ("", "NA", "N/A", "n/a", "NaN", "nan", "null", "NULL", "None", "?")
FILES = ("train", "test", "validation")


@dataclass(frozen=True)
class TableOptions:
    """Keys of config.reader.TableReaderConfig; a single name is a list of one."""

    label: str = ""
    train: tuple[str, ...] = ()
    test: tuple[str, ...] = ()
    validation: tuple[str, ...] = ()
    test_fraction: float = 0.2
    split_column: str | None = None
    target: Literal["classes", "numbers"] = "classes"
    features: tuple[str, ...] = ("*",)
    exclude: tuple[str, ...] = ()
    categorical: tuple[str, ...] = ()
    categories: Literal["one_hot", "integer"] = "one_hot"
    missing: Literal["refuse", "drop", "median"] = "refuse"
    na: tuple[str, ...] = MISSING
    columns: tuple[str, ...] = ()
    delimiter: str | None = None
    decimal: str = "."
    tree: str | None = None

    @classmethod
    def of(cls, keys: Mapping[str, Any]) -> "TableOptions":
        """Return the options of the keys that differ from their defaults."""
        values = {field.name: keys[field.name] for field in fields(cls) if field.name in keys}
        for name, value in values.items():
            form = str if name in FILES else composed
            if isinstance(getattr(cls, name), tuple):
                values[name] = tuple(map(form, [value] if isinstance(value, str) else value))
            elif name in ("label", "split_column") and value is not None:
                values[name] = form(value)
        return cls(**values)


def matching(names: Sequence[str], patterns: Sequence[str]) -> list[str]:
    """Return the names that equal or match a pattern."""
    return [name for name in names if any(name == each or fnmatchcase(name, each) for each in patterns)]
