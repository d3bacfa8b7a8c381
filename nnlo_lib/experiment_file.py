"""Read an experiment file; every mistake is told with file, line and what to write instead."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from nnlo_lib.config import Experiment, Run, merge, nearest
from nnlo_lib.errors import UserError

Key = tuple[str | int, ...]


def load(path: str | Path, changes: Sequence[str] = ()) -> Experiment:
    """Read and check the experiment in `path`, with `key.subkey=value` changes applied.

    Raises UserError that lists every mistake as `file:line: key: what is wrong`.
    """
    path = Path(path)
    tree = _compose(path)
    settings = yaml.safe_load(path.read_text()) or {}
    if not isinstance(settings, dict):
        raise UserError(f"{path}:1: an experiment is a mapping of keys to values, like `name: quickstart`")
    changed = [_apply(settings, change) for change in changes]
    mistakes = list(_mistakes(Experiment, settings)) or list(_run_mistakes(settings))
    if mistakes:
        lines = (f"{_place(path, tree, key, changed)}: {message}" for key, message in mistakes)
        raise UserError("the experiment cannot run\n  " + "\n  ".join(dict.fromkeys(lines)))
    return Experiment.model_validate(settings)


def _compose(path: Path) -> yaml.Node | None:
    try:
        tree = yaml.compose(path.read_text())
    except OSError as error:
        raise UserError(f"cannot read the experiment file {path}: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) or error
        raise UserError(f"{path}{line}: this is not YAML: {problem}") from error
    for key, line in _repeated(tree):
        raise UserError(f"{path}:{line}: the key '{key}' is there twice; keep one of them")
    return tree


def _repeated(node: yaml.Node | None) -> Iterator[tuple[str, int]]:
    if isinstance(node, yaml.MappingNode):
        seen = set()
        for key, value in node.value:
            if key.value in seen:
                yield key.value, key.start_mark.line + 1
            seen.add(key.value)
            yield from _repeated(value)


def _apply(settings: dict[str, Any], change: str) -> Key:
    """Set one `key.subkey=value` and return its key."""
    name, equals, value = change.partition("=")
    if not equals:
        raise UserError(f"--set {change}: write it as key=value, like train.epochs=3")
    *path, last = name.split(".")
    block = settings
    for part in path:
        if not isinstance(block.get(part), dict):
            block[part] = {}
        block = block[part]
    block[last] = yaml.safe_load(value)
    return tuple(name.split("."))


def _mistakes(model: type[BaseModel], settings: Any) -> Iterator[tuple[Key, str]]:
    try:
        model.model_validate(settings)
    except ValidationError as error:
        for detail in error.errors():
            yield (*detail["loc"], *detail.get("ctx", {}).get("at", ())), _sentence(detail)


def _run_mistakes(settings: Mapping[str, Any]) -> Iterator[tuple[Key, str]]:
    """Check each run with its overrides merged in; point at the override where there is one."""
    base = Experiment.model_validate(settings).model_dump(include=set(Run.model_fields))
    for name, changes in (settings.get("runs") or {}).items():
        for key, message in _mistakes(Run, merge(base, changes)):
            yield ("runs", name, *key), message


def _sentence(detail: ErrorDetails) -> str:
    context, given = detail.get("ctx", {}), detail["input"]
    match detail["type"]:
        case "refused":
            return str(context["message"])
        case "literal_error":
            return f"must be one of {context['expected']}, not {given!r}"
        case "union_tag_invalid":
            known = context["expected_tags"].replace("'", "").split(", ")
            return f"unknown name '{context['tag']}'; {nearest(str(context['tag']), known)}"
        case "union_tag_not_found":
            return "say which one by its `name`"
        case _:
            what = detail["msg"].replace("Input should", "should")
            return f"{what} (this is {given!r})"


def _place(path: Path, tree: yaml.Node | None, key: Key, changed: Sequence[Key]) -> str:
    """Name where `key` was written: `--set`, or file, line and dotted key."""
    line, written = _locate(tree, key)
    if key[:1] == ("runs",) and len(written) < 3:
        base_line, base_written = _locate(tree, key[2:])
        line, written = (base_line, base_written) if base_written else (line, written)
    names = [".".join(map(str, one)) for one in changed]
    dotted = ".".join(map(str, [*(part for part in key[:-1] if part in written), *key[-1:]]))
    if any(dotted == name or dotted.startswith(name + ".") for name in names):
        return f"--set {dotted}"
    return f"{path}:{line}: {dotted}" if dotted else f"{path}:{line}"


def _locate(node: yaml.Node | None, key: Key) -> tuple[int, Key]:
    """Follow `key` as far as the file goes; parts that were not written (union tags) are skipped."""
    line, written = (node.start_mark.line + 1, ()) if node else (1, ())
    for part in key:
        step = _child(node, part)
        if step is not None:
            line, node = step
            written = (*written, part)
    return line, written


def _child(node: yaml.Node | None, part: str | int) -> tuple[int, yaml.Node] | None:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if key.value == str(part):
                return key.start_mark.line + 1, value
    if isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
        return node.value[part].start_mark.line + 1, node.value[part]
    return None
