"""Keys of an experiment that a search may change."""

import difflib
from collections.abc import Iterator

from nnlo_lib.config import ConfigModel, Experiment, Run, block_types

# Keys of `data` that are equal in all trials because the trials share one store.
SHARED_DATA_KEYS = (
    "dataset",
    "source",
    "reader",
    "format",
    "shard_size",
)
EXPERIMENT_ONLY_KEYS = frozenset(Experiment.model_fields) - frozenset(Run.model_fields)


def reason_not_searchable(key: str) -> str | None:
    """Return the reason why a key cannot be searched, or None if it can."""
    first, *rest = key.split(".")
    if first in EXPERIMENT_ONLY_KEYS:
        return f"cannot be searched: '{first}' belongs to the experiment, not to the configuration of a trial"
    if first == "data" and rest[:1] and rest[0] in SHARED_DATA_KEYS:
        return "cannot be searched: all trials share one copy of the data"
    if is_known(key):
        return None
    close = _close(key)
    hint = f"did you mean {' or '.join(close)}?" if close else "docs/reference/experiment.md lists all keys"
    return f"unknown key '{key}'; {hint}"


def is_known(key: str) -> bool:
    """Return True if a run may have this key; any key below a dictionary is accepted."""
    inside: list[type[ConfigModel]] = [Run]
    for part in key.split("."):
        annotations = [block.model_fields[part].annotation for block in inside if part in block.model_fields]
        if not annotations:
            return False
        if any("dict" in str(annotation) for annotation in annotations):
            return True
        inside = [block for annotation in annotations for block in block_types(annotation)]
    return True


def _close(key: str) -> list[str]:
    """Return up to two similar keys with the same last part, or else the most similar key."""
    known = sorted(set(_keys(Run)))
    same_end = [each for each in known if each.rpartition(".")[2] == key.rpartition(".")[2]]
    return difflib.get_close_matches(key, same_end, n=2, cutoff=0.6) or difflib.get_close_matches(
        key, known, n=1
    )


def _keys(block: type[ConfigModel], above: str = "", depth: int = 0) -> Iterator[str]:
    for name, field in block.model_fields.items():
        yield f"{above}{name}"
        if depth < 3:
            for inner in block_types(field.annotation):
                yield from _keys(inner, f"{above}{name}.", depth + 1)
