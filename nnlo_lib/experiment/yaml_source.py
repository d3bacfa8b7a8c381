"""YAML reader that records the file and line of every key."""

import re
import unicodedata
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import yaml

from nnlo_lib.core.errors import UserError
from nnlo_lib.core.text_format import decoded

KeyPath = tuple[str, ...]
# Of a file in which each alias is replaced by a copy: some lines of aliases could need hours or the whole memory.
MAX_FILE_BYTES = 500_000
MAX_LEVELS = 50  # an experiment has at most 10
MERGE = "<<"
EXTENSION = "x-"  # beginning of keys at the top level that are places for anchors, as in Compose files
# What word processors write in place of YAML's characters.
ODD_SPACE, ODD_QUOTES = (
    re.compile("[\u00a0\u2007\u202f\u200b]"),
    re.compile("[\u2018\u2019\u201c-\u201e\u00ab\u00bb]"),
)
NUMBER_TAGS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")


class ExperimentYamlLoader(yaml.SafeLoader):
    """YAML 1.1 loader that keeps keys as written text, reads 1e-3 as a number, and dates and 24:00:00 as text."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Return the mapping with each key as written."""
        self.flatten_mapping(node)
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise yaml.constructor.ConstructorError(
                    None, None, "a key must be a scalar, not a list or a mapping", key.start_mark
                )
        # SafeLoader would convert keys like values: `on` to True and 2024-01-01 to a date.
        return {key.value: self.construct_object(value, deep=True) for key, value in node.value}


# Without YAML 1.1's numbers in base 60 (24:00:00 would be 86400) and base 8 (010 would be 8).
ExperimentYamlLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag not in NUMBER_TAGS]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
ExperimentYamlLoader.add_constructor("tag:yaml.org,2002:timestamp", lambda _, node: node.value)
ExperimentYamlLoader.add_constructor("tag:yaml.org,2002:int", lambda _, node: _integer(node.value))
ExperimentYamlLoader.add_implicit_resolver(
    "tag:yaml.org,2002:int",
    # Of underscores, only those between thousands: 2024_07 is a name.
    re.compile(r"[-+]?(0b[01_]+|0x[\da-fA-F_]+|\d{1,3}(_\d{3}){1,200}|\d{1,1000})$"), list("-+0123456789"),
)  # fmt: skip
# YAML 1.1 requires a decimal point and a sign of the exponent, and reads 1e-3 as text.
ExperimentYamlLoader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"([-+]?((\d{1,3}(_\d{3})+|\d+)\.\d*|\.\d+)([eE][-+]?\d+)?|[-+]?\d+[eE][-+]?\d+|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN))$"),
    list("-+.0123456789"),
)  # fmt: skip


def _integer(text: str) -> int:
    digits = text.replace("_", "")
    return int(digits, 0) if digits.lstrip("+-")[:2] in ("0b", "0x") else int(digits)


def read_yaml(path: Path) -> tuple[dict[str, Any], dict[KeyPath, str]]:
    """Return the settings in an experiment file and the `file:line` of each key.

    Raises UserError if the file cannot be read, is not YAML, is not a mapping, has a key twice, or exceeds a limit.
    """
    try:
        with path.open("rb") as file:
            # A file without an end, such as /dev/zero, is not read as a whole.
            text = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise UserError(f"cannot read the experiment file {path}: {error.strerror}") from error
    values, origins = read_settings(text, lambda line: f"{path}:{line}")
    if not values:  # a full disk leaves such a file; it must not train the defaults
        raise UserError(
            f"{path}: no keys in this file; an experiment has at least a name, such as `name: mine`"
        )
    return values, origins


def read_settings(
    text: bytes | str, place: Callable[[int], str]
) -> tuple[dict[str, Any], dict[KeyPath, str]]:
    """Return the settings in a YAML text and the place of each key, by its line, without the places for anchors (x-...).

    Raises UserError as `read_yaml`.
    """
    values, lines = parse_yaml(text, place)
    if not isinstance(values := {} if values is None else values, dict):
        raise UserError(
            f"{place(1)}: an experiment must be a mapping of keys to values, such as `name: quickstart`"
        )
    origins: dict[KeyPath, str] = {(): place(1)}
    # From the nodes, because PyYAML silently keeps the last of equal keys in the values.
    for key, line in lines:
        if key in origins:
            merge = "write one line <<: [*x, *y], in which the first has priority"
            raise UserError(
                f"{place(line)}: duplicate key '{key[-1]}'; {merge if key[-1] == MERGE else 'remove one of them'}"
            )
        if not key[0].startswith(EXTENSION):
            origins[key] = place(line)
    return {key: value for key, value in values.items() if not key.startswith(EXTENSION)}, origins


def parse_yaml(text: bytes | str, place: Callable[[int], str]) -> tuple[Any, list[tuple[KeyPath, int]]]:
    """Return the values of a YAML text, and the line of each key; `place(line)` names a line.

    Raises UserError if the text is not YAML or exceeds a limit.
    """
    if len(text) > MAX_FILE_BYTES:
        raise UserError(f"{place(1)}: larger than {MAX_FILE_BYTES:,} bytes, the limit of an experiment file")
    try:
        loader = ExperimentYamlLoader(text)
        tree = loader.get_single_node()
        lines = list(_lines(tree))  # first, because the construction replaces merge keys in the nodes
        return loader.construct_document(tree) if tree else None, lines
    except RecursionError as error:
        raise UserError(f"{place(1)}: invalid YAML: more than {MAX_LEVELS} nested levels") from error
    except yaml.reader.ReaderError as error:
        # The reader stops at a byte before the parser has a line; latin-1 text is the usual cause.
        line = 1 + text[: error.position].count(b"\n" if isinstance(text, bytes) else "\n")  # type: ignore[arg-type]
        remedy = "remove this character" if error.encoding == "unicode" else "save the file as UTF-8"
        raise UserError(
            f"{place(line)}: invalid YAML: {error.reason} ({error.character:#x}); {remedy}"
        ) from error
    except Exception as error:  # PyYAML does not catch KeyError, ValueError ... of odd values
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or getattr(error, "reason", None) or error
        line, problem = _odd_line(text, mark.line if mark else 0) or (mark.line if mark else 0, problem)
        raise UserError(f"{place(line + 1)}: invalid YAML: {problem}") from error


def _odd_line(text: bytes | str, line: int) -> tuple[int, str] | None:
    """Return the line, from 0, and the problem of a character near an error that looks like one of YAML."""
    lines = (decoded(text, "replace") if isinstance(text, bytes) else text).split("\n")
    for number in (line, line - 1):
        content = lines[number] if 0 <= number < len(lines) else ""
        if "\t" in content[: len(content) - len(content.lstrip())]:
            return number, "found character '\\t' (a tab) in the indentation; indent by spaces"
        if odd := ODD_SPACE.search(content) or ODD_QUOTES.search(content):
            return number, _odd_problem(odd[0])
    return None


def _odd_problem(character: str) -> str:
    is_space = ODD_SPACE.match(character)
    kind, instead = ("space", "an ordinary space") if is_space else ("quotation mark", "\" or '")
    name = unicodedata.name(character).lower()
    return f"{kind} U+{ord(character):04X} ({name}); write {instead}, or quote a text that has it"


def _lines(tree: yaml.Node | None) -> Iterator[tuple[KeyPath, int]]:
    """Yield every key and list item with its line. Raises yaml.YAMLError if copies of aliases exceed a limit."""
    size = 0
    for key, start, chars in _entries(tree, ()):
        size += chars
        if size > MAX_FILE_BYTES or len(key) > MAX_LEVELS:
            is_large = size > MAX_FILE_BYTES
            limit = f"{MAX_FILE_BYTES:,} characters" if is_large else f"{MAX_LEVELS} nested levels"
            counted = "counted as if each alias (*name) was a copy; use fewer aliases or levels"
            raise yaml.MarkedYAMLError(problem=f"more than {limit}, {counted}", problem_mark=start)
        yield key, start.line + 1


def _entries(node: yaml.Node | None, above: KeyPath) -> Iterator[tuple[KeyPath, yaml.Mark, int]]:
    """Yield every key and list item with its start and the smallest number of characters that it needs."""
    parts = []
    if isinstance(node, yaml.MappingNode):
        parts = [(name.value, name, value) for name, value in node.value]
    elif isinstance(node, yaml.SequenceNode):
        parts = [(str(index), item, item) for index, item in enumerate(node.value)]
    for name, start, value in parts:
        scalars = [part for part in {start, value} if isinstance(part, yaml.ScalarNode)]
        for part in scalars:
            odd = ODD_SPACE.search(part.value) or ODD_QUOTES.search(part.value[:1] + part.value[-1:])
            if odd and not part.style:
                raise yaml.MarkedYAMLError(problem=_odd_problem(odd[0]), problem_mark=part.start_mark)
        yield (*above, name), start.start_mark, 1 + sum(len(part.value) for part in scalars)
        yield from _entries(value, (*above, name))
