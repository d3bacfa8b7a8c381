"""Read an experiment file; every mistake is told with file, line and what to write instead."""

import json
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from nnlo_lib.config import Experiment, Run, Strict, blocks, merge, nearest
from nnlo_lib.config.validity import needs, unused
from nnlo_lib.config.watching import blind
from nnlo_lib.errors import UserError
from nnlo_lib.yaml_file import Key, parse, read


def load(path: str | Path, changes: Sequence[str] = ()) -> Experiment:
    """Read and check the experiment in `path`, with `key.subkey=value` changes applied.

    Raises UserError that lists every mistake as `file:line: key: what is wrong`.
    """
    settings, origins = read(Path(path))
    for change in changes:
        key = _apply(settings, change)
        origins = {other: place for other, place in origins.items() if other[: len(key)] != key}
        for depth in range(len(key)):
            origins.setdefault(key[: depth + 1], f"--set {change}")
    mistakes = list(_mistakes(Experiment, settings)) or list(_run_mistakes(settings))
    mistakes = mistakes or list(_unused_mistakes(Experiment.model_validate(settings), settings))
    mistakes = mistakes or list(_data_mistakes(Experiment.model_validate(settings)))
    mistakes = mistakes or list(_blind_mistakes(Experiment.model_validate(settings)))
    mistakes = mistakes or list(_missing_extras(Experiment.model_validate(settings)))
    mistakes = mistakes or list(_graph_mistakes(Experiment.model_validate(settings)))
    mistakes = mistakes or list(_search_mistakes(_ranged(Experiment.model_validate(settings))))
    if mistakes:
        order = list(origins)
        mistakes.sort(key=lambda mistake: order.index(_written(mistake[0], origins)))
        lines = (f"{origins[_written(key, origins)]}: {'.'.join(key)}: {what}" for key, what in mistakes)
        raise UserError("\n  ".join(["the experiment cannot run", *lines]))
    return _ranged(Experiment.model_validate(settings))


def _apply(settings: dict[str, Any], change: str) -> Key:
    """Set one `key.subkey=value` and return its key; a new `name` starts its block afresh, as in `runs`."""
    key, given = read_change(change)
    *path, last = key
    block = settings
    for part in path:
        inner = block.get(part)
        if not isinstance(inner, dict | None):
            raise UserError(f"--set {change}: '{part}' is {_shown(inner)}, not a block of keys")
        block[part] = block = dict(inner or {})
    if path and last == "name" and block.get("name", given) != given:
        block.clear()
    block[last] = given
    return key


def read_change(change: str) -> tuple[Key, Any]:
    """Return the key and the value of a `key.subkey=value`. Raises UserError if it is none."""
    name, equals, value = change.partition("=")
    key = _key(name)
    if not (equals and all(key)):
        raise UserError(f"--set {change}: write it as key=value, like train.epochs=3")
    return key, parse(value, lambda line: f"--set {change}")[0]


def _key(name: str) -> Key:
    """Split a dotted name; a key of `search.space` has dots of its own."""
    inside = name.removeprefix("search.space.")
    return ("search", "space", inside) if inside != name else tuple(name.split("."))


def _ranged(experiment: Experiment) -> Experiment:
    """Add to the space what the model's function says of its arguments."""
    if experiment.search is None:
        return experiment
    from nnlo_lib.search.parameter_range import parameter_range

    space = parameter_range(experiment.model) | experiment.search.space
    return experiment.model_copy(update={"search": experiment.search.model_copy(update={"space": space})})


def _search_mistakes(experiment: Experiment) -> Iterator[tuple[Key, str]]:
    """Find what a search may try that no training can be."""
    if experiment.search is None:
        return iter(())
    from nnlo_lib.search.check import mistakes

    return mistakes(experiment, lambda run: _mistakes(Run, run))


def _mistakes(model: type[Strict], settings: Any) -> Iterator[tuple[Key, str]]:
    try:
        model.model_validate(settings)
    except ValidationError as error:
        told: dict[Key, list[str]] = {}
        for detail in error.errors():
            key, known = _follow(model, detail["loc"])
            told.setdefault((*key, *_below(detail)), []).append(_sentence(detail, known))
        for key, sentences in told.items():
            if not any(other[: len(key)] == key != other for other in told):  # what is wrong inside says more
                yield key, "; or ".join(sentences)


def _run_mistakes(settings: Mapping[str, Any]) -> Iterator[tuple[Key, str]]:
    """Check each run with its overrides merged in."""
    base = Experiment.model_validate(settings).settings
    for name, changes in settings.get("runs", {}).items():
        for key, message in _mistakes(Run, merge(base, changes)):
            yield ("runs", name, *key), message


def _unused_mistakes(experiment: Experiment, settings: Mapping[str, Any]) -> Iterator[tuple[Key, str]]:
    """Find what is written for one run and not used by its algorithm, or written for all and used by none."""
    runs = {name: _unused(run) for name, run in experiment.variants.items()}
    for name, faults in runs.items():
        own = (key for key in faults if _holds(settings, "runs", name, *key))
        yield from ((("runs", name, *key), faults[key]) for key in own)
    if experiment.search is None or "algorithm.name" not in experiment.search.space:
        of_all = [*runs.values(), *([_unused(experiment)] if experiment.search else [])]
        shared = (key for key in of_all[0] if all(key in faults for faults in of_all))
        yield from ((key, of_all[0][key]) for key in shared if _holds(settings, *key))
        yield from _searched_in_vain(experiment)


def _searched_in_vain(experiment: Experiment) -> Iterator[tuple[Key, str]]:
    for searched in experiment.search.space if experiment.search else ():
        faults = (what for key, what in _unused(experiment).items() if searched.startswith(".".join(key)))
        yield from ((("search", "space", searched), what) for what in faults)


def _unused(run: Run) -> dict[Key, str]:
    return {key: what for what, key in unused(run)}


def _holds(settings: Any, *key: str) -> bool:
    """Tell whether something is written below nested keys."""
    for part in key:
        settings = settings.get(part) if isinstance(settings, Mapping) else None
    return settings is not None


def _data_mistakes(experiment: Experiment) -> Iterator[tuple[Key, str]]:
    """Find runs that want other originals of one data set, or other shards of one store: all share one copy."""
    first: dict[Key, Any] = {}
    for name, run in experiment.variants.items():
        data = run.data.model_dump(mode="json")
        store = data["dataset"], data["format"]
        for key, *shared in (("source", store[0]), ("reader", store[0]), ("shard_size", *store)):
            other = first.setdefault((key, *shared), data[key])
            if other != data[key]:
                what = f"another run has {_shown(other)}, and all share one copy of the data"
                yield ("runs", name, "data", key), what


def _blind_mistakes(experiment: Experiment) -> Iterator[tuple[Key, str]]:
    """Find runs in which something that is never measured is to decide."""
    for name, run in experiment.variants.items():
        for key, metric in blind(run) if experiment.folds == 1 else ():
            at = ("runs", name) if experiment.runs else ()
            yield (*at, "train", key), f"watches {metric}, but no sample validates; set data.validation"


def _missing_extras(experiment: Experiment) -> Iterator[tuple[Key, str]]:
    """Find runs that want to be observed by what is not installed."""
    for name, run in experiment.variants.items():
        if lacking := run.observe.lacking:
            yield ("runs", name, "observe", "tensorboard"), lacking


def _graph_mistakes(experiment: Experiment) -> Iterator[tuple[Key, str]]:
    """Find runs whose graph cannot be made, or is not what their algorithm needs, for some seed."""
    runs = {name: run for name, run in experiment.variants.items() if needs(run.algorithm).graph}
    if not runs:
        return
    from nnlo_lib.topology.check import graph_fault

    for name, run in runs.items():
        fault = next(filter(None, (graph_fault(run, seed) for seed in experiment.seeds)), None)
        if fault:
            yield ("runs", name, "topology"), fault


def _follow(model: type[Strict], location: Iterable[str | int]) -> tuple[Key, set[str]]:
    """Turn pydantic's location into the key in the file, and list the names known where it is.

    Below a union pydantic names the member, which is not written there; likewise `[key]`.
    """
    key: Key = ()
    inside, known, untagged, keyed = [model], set[str](), False, False
    for part in location:
        if keyed:
            key, keyed = (*key, str(part)), False
        elif len(inside) > 1:
            inside = [block for block in inside if block.model_fields["name"].default == part]
        elif untagged:
            untagged = False
        elif part != "[key]":
            fields = {name: field for block in inside for name, field in block.model_fields.items()}
            annotation = fields[str(part)].annotation if part in fields else None
            inside, untagged = list(blocks(annotation)), _is_untagged(annotation)
            keyed = get_origin(annotation) is dict
            key, known = (*key, str(part)), set(fields)
    return key, known


def _is_untagged(annotation: Any) -> bool:
    """Tell a union of several kinds of value, at most one of them a block."""
    members = [member for member in get_args(annotation) if member is not NoneType]
    return (
        get_origin(annotation) in (Union, UnionType)
        and len(members) > 1
        and len(list(blocks(annotation))) < 2
    )


def _below(detail: ErrorDetails) -> Key:
    """Name the key below pydantic's location that is to blame."""
    return ("name",) if detail["type"] == "union_tag_invalid" else detail.get("ctx", {}).get("at", ())


def _sentence(detail: ErrorDetails, known: Iterable[str]) -> str:
    context, given = detail.get("ctx", {}), detail["input"]
    match detail["type"]:
        case "refused":
            return str(context["message"])
        case "extra_forbidden":
            word = str(detail["loc"][-1])
            return f"unknown key '{word}'; {nearest(word, known)}"
        case "literal_error":
            return f"must be one of {context['expected']}, not {_shown(given)}"
        case "union_tag_invalid":
            names = context["expected_tags"].replace("'", "").split(", ")
            return f"unknown name '{context['tag']}'; {nearest(str(context['tag']), names)}"
        case "union_tag_not_found":
            return "say which one by its `name`"
        case "too_short":
            return f"needs at least {context['min_length']} valid value, not {_shown(given)}"
        case "missing":
            return "must be given"
        case "none_required":
            return "is not there yet; leave it out"
        case "string_pattern_mismatch":
            return f"must be letters, digits, '_', '.' or '-', not {_shown(given)}: it names a folder"
        case "model_type" | "model_attributes_type" | "dict_type":
            return f"must be a block of keys like {{key: value}}, not {_shown(given)}"
        case _:
            what = detail["msg"].replace("Input should", "should").replace("tuple", "list")
            return f"{what} (this is {_shown(given)})"


def _shown(value: Any) -> str:
    return textwrap.shorten(json.dumps(value, default=str, ensure_ascii=False), 60)


def _written(key: Key, origins: Mapping[Key, str]) -> Key:
    """Find what was written of `key`: in a run's overrides, else in the base, else the block around it."""
    written = next(key[:depth] for depth in range(len(key), -1, -1) if key[:depth] in origins)
    in_base = key[2:] if key[:1] == ("runs",) else ()
    if in_base and len(written) < 3 and in_base[:1] in origins:
        return _written(in_base, origins)
    return written
