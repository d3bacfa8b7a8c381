"""Changes on the command line that would do nothing, for what `runs:` says goes before."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from nnlo_lib.config import Experiment, merge
from nnlo_lib.errors import UserError
from nnlo_lib.experiment_file import read_change
from nnlo_lib.yaml_file import Key


def refuse_overridden(experiment: Experiment, names: Sequence[str], changes: Sequence[str]) -> None:
    """Raise UserError for a `--set` that none of these runs takes over from the base."""
    base = experiment.settings
    merged = {name: merge(base, experiment.runs.get(name, {})) for name in names}
    for change in changes:
        for key, value in _leaves(*read_change(change)):
            kept = {name: _at(run, key) for name, run in merged.items() if _at(run, key) != _at(base, key)}
            if len(kept) == len(names):
                said = ", ".join(
                    f"runs.{name}.{'.'.join(key)} says {_told(there)}" for name, there in kept.items()
                )
                instead = " ".join(f"--set runs.{name}.{'.'.join(key)}={_told(value)}" for name in kept)
                raise UserError(f"--set {change} changes nothing here: {said}; use {instead}")


def _leaves(key: Key, value: Any) -> Iterator[tuple[Key, Any]]:
    if isinstance(value, dict) and value:
        for part, inner in value.items():
            yield from _leaves((*key, str(part)), inner)
    else:
        yield key, value


def _told(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _at(settings: Any, key: Key) -> Any:
    """Return what is at a key, None where nothing is."""
    for part in key:
        settings = settings.get(part) if isinstance(settings, dict) else None
    return settings
