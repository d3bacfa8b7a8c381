"""Checks of the keys in DiNNO's files, so that no key is misspelled or ignored."""

from collections.abc import Iterable, Mapping
from typing import Any

from nnlo_lib.config import suggest_name
from nnlo_lib.core.errors import UserError


def leaf_keys(block: Any) -> set[str]:
    """Return the keys of a file that hold values rather than blocks."""
    inner = [block] if isinstance(block, Mapping) else []
    keys = {key for each in inner for key, value in each.items() if not isinstance(value, Mapping)}
    return keys.union(*(leaf_keys(value) for each in inner for value in each.values()))


def number(block: Mapping[str, Any], key: str, default: float) -> float:
    """Return a number of a block; if the default is an int, an int above 0. Raises UserError otherwise."""
    value = block.get(key, default)
    whole = isinstance(default, int)
    if (
        isinstance(value, bool)
        or not isinstance(value, int if whole else int | float)
        or (whole and value < 1)
    ):
        raise UserError(
            f"{key}: {'a whole number above 0' if whole else 'a number'} is wanted, not {value!r}"
        )
    return value


def check_keys(block: Mapping[str, Any], keys: Iterable[str], where: str) -> None:
    """Raise UserError if `block` is no mapping or has a key that DiNNO does not know."""
    if not isinstance(block, Mapping):
        raise UserError(f"{where}: a block of keys is wanted, not {block!r}")
    for key in block:
        if key not in set(keys):
            raise UserError(f"{where}: DiNNO has no key '{key}'; {suggest_name(key, keys)}")
