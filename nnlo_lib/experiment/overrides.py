"""Overrides of experiment settings on the command line: `--set key.subkey=value`."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from nnlo_lib.config import Experiment, merge_settings
from nnlo_lib.core.errors import UserError
from nnlo_lib.experiment.validation_messages import shown
from nnlo_lib.experiment.yaml_source import KeyPath, parse_yaml


def apply_overrides(
    settings: dict[str, Any], origins: dict[KeyPath, str], changes: Sequence[str]
) -> dict[KeyPath, str]:
    """Apply changes to the settings in place; return the updated origin of every key.

    Args:
        settings: settings of the experiment file.
        origins: place of each key, such as `file:line`.
        changes: changes of the form `key.subkey=value`, applied in order, names first.
    """
    # A new `name` discards the other keys of its section, so that it must not come after them.
    for change in sorted(changes, key=lambda change: parse_override(change)[0][-1] != "name"):
        key = _apply(settings, change)
        # The change replaces everything below its key, whose lines in the file no longer apply. Enclosing
        # sections keep their lines.
        origins = {other: place for other, place in origins.items() if other[: len(key)] != key}
        for depth in range(len(key)):
            origins.setdefault(key[: depth + 1], f"--set {change}")
    return origins


def _apply(settings: dict[str, Any], change: str) -> KeyPath:
    """Apply one `key.subkey=value` and return its key; a new `name` clears its section, as in `runs`."""
    key, given = parse_override(change)
    *path, last = key
    block = settings
    for part in path:
        inner = block.get(part)
        if not isinstance(inner, dict | None):
            raise UserError(f"--set {change}: '{part}' is {shown(inner)}, which has no keys")
        # A copy, because an alias of YAML lets several keys share one mapping. Python assigns the targets
        # from left to right: first the entry of the outer mapping, then the name `block`.
        block[part] = block = dict(inner or {})
    if path and last == "name" and block.get("name", given) != given:
        block.clear()
    block[last] = given
    return key


def parse_override(change: str) -> tuple[KeyPath, Any]:
    """Return the key and the value of a `key.subkey=value`. Raises UserError if it has another form."""
    name, equals, value = change.partition("=")
    key = _key(name)
    if not (equals and all(key)):
        raise UserError(f"--set {change}: not of the form key=value; write for example --set train.epochs=3")
    return key, parse_yaml(value, lambda line: f"--set {change}")[0]


def _key(name: str) -> KeyPath:
    """Split a dotted name; the part after `search.space.` is one key that contains dots."""
    inside = name.removeprefix("search.space.")
    return ("search", "space", inside) if inside != name else tuple(name.split("."))


def reject_ineffective_overrides(
    experiment: Experiment, names: Sequence[str], changes: Sequence[str]
) -> None:
    """Raise UserError if a change has no effect because each of the runs overrides its key.

    Args:
        experiment: experiment with the changes applied.
        names: names of the runs.
        changes: changes of the form `key.subkey=value`.
    """
    base = experiment.settings
    merged = {name: merge_settings(base, experiment.runs.get(name, {})) for name in names}
    for change in changes:
        for key, value in _leaves(*parse_override(change)):
            kept = {name: _at(run, key) for name, run in merged.items() if _at(run, key) != _at(base, key)}
            # A change that at least one run takes over has an effect.
            if len(kept) == len(names):
                overriding = ", ".join(
                    f"runs.{name}.{'.'.join(key)} is {_value_text(own)}" for name, own in kept.items()
                )
                instead = " ".join(f"--set runs.{name}.{'.'.join(key)}={_value_text(value)}" for name in kept)
                raise UserError(f"--set {change} has no effect: {overriding}; use {instead}")


def _leaves(key: KeyPath, value: Any) -> Iterator[tuple[KeyPath, Any]]:
    if isinstance(value, dict) and value:
        for part, inner in value.items():
            yield from _leaves((*key, str(part)), inner)
    else:
        yield key, value


def _value_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _at(settings: Any, key: KeyPath) -> Any:
    """Return the value at a key, or None if there is no value."""
    for part in key:
        settings = settings.get(part) if isinstance(settings, dict) else None
    return settings
