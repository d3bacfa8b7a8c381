"""Checks of the keys and values in DiNNO's files, so that no misspelled key is ignored."""

from collections.abc import Iterable, Mapping
from typing import Any

from nnlo_lib.config import suggest_name
from nnlo_lib.core.errors import UserError


def leaf_keys(block: Any) -> set[str]:
    """Return the keys, at any depth, whose values are not mappings."""
    inner = [block] if isinstance(block, Mapping) else []
    keys = {key for each in inner for key, value in each.items() if not isinstance(value, Mapping)}
    return keys.union(*(leaf_keys(value) for each in inner for value in each.values()))


def number(block: Mapping[str, Any], key: str, default: float) -> float:
    """Return a number of a section of the file.

    Args:
        block: section of the file.
        key: key of the number.
        default: value if the key is missing; an int allows only positive integers.

    Raises:
        UserError: if the value is not such a number.
    """
    value = block.get(key, default)
    whole = isinstance(default, int)
    if (
        # bool is a subclass of int.
        isinstance(value, bool)
        or not isinstance(value, int if whole else int | float)
        or (whole and value < 1)
    ):
        raise UserError(f"{key}: expected {'a positive integer' if whole else 'a number'}, got {value!r}")
    return value


def check_keys(block: Mapping[str, Any], keys: Iterable[str], where: str) -> None:
    """Check the keys of a section of the file.

    Args:
        block: section of the file.
        keys: keys that DiNNO defines.
        where: name of the section in error messages.

    Raises:
        UserError: if `block` is not a mapping, or has a key that DiNNO does not define.
    """
    if not isinstance(block, Mapping):
        raise UserError(f"{where}: expected a mapping of keys, got {block!r}")
    for key in block:
        if key not in set(keys):
            raise UserError(f"{where}: DiNNO has no key '{key}'; {suggest_name(key, keys)}")
