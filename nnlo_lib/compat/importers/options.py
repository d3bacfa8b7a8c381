"""Tables of an imported launcher's options: type, default and translation of each; the options of one command."""

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nnlo_lib.config import suggest_name
from nnlo_lib.core.errors import UserError


@dataclass(frozen=True)
class OptionSpec:
    """One option of an imported launcher, and the key of the experiment that takes its value."""

    parse: Callable[[str], Any] | None = str  # None for a flag without a value
    default: Any = None
    key: str = ""
    to: Callable[[Any], Any] = lambda value: value  # the key's value; None: the key is not set
    note: str = ""  # difference that a given option makes
    missing_reason: str = ""  # why experiments lack the key, or any equivalent


def flag_option(note: str = "", missing: str = "", key: str = "") -> OptionSpec:
    """Return the specification of an option without a value; it sets `key`, if any, to True."""
    return OptionSpec(None, False, key, note=note, missing_reason=missing)


def parse_bool(text: str) -> bool:
    """Parse a boolean as PyDTNN does: true, 1 and yes are True, any other text is False."""
    return text.lower() in ("true", "1", "yes")


def parse_arguments(text: str) -> dict[str, Any]:
    """Parse arguments written as a Python dictionary, such as {'lr': 0.1}; else raise ValueError or SyntaxError."""
    value = ast.literal_eval(text)
    if not isinstance(value, dict):
        raise ValueError("not a dictionary")
    return value


VALUE_KINDS: dict[Callable[[str], Any], str] = {
    int: "an integer",
    float: "a number",
    parse_arguments: "a Python dictionary such as \"{'lr': 0.1}\"",
}


class ParsedOptions:
    """Options of a command, parsed by a table; omitted options have their default values."""

    def __init__(
        self,
        program: str,
        table: Mapping[str, OptionSpec],
        words: Sequence[str],
        positional: Sequence[str] = (),
    ):
        self.program, self.table = program, table
        self._values: dict[str, Any] = {}
        self._written: dict[str, str] = {}
        free, rest = list(positional), list(words)
        while rest:
            word = rest.pop(0)
            if word.startswith("--"):
                self._read(word, rest)
            elif free:
                name = free.pop(0)
                self._values[name] = self._written[name] = word
            else:
                raise UserError(
                    f"{program}: unexpected argument '{word}'; write it after its option or remove it"
                )
        if free:
            raise UserError(
                f"{program}: the argument {free[0]} is missing; the positional arguments are {', '.join(positional)}"
            )

    def _read(self, word: str, rest: list[str]) -> None:
        written, equals, text = word.partition("=")
        name = self._full_name(written)
        parse = self.table[name].parse
        if parse is None:
            if equals:
                raise UserError(f"{self.program}: {written} takes no value, got '{text}'; remove the value")
            self._values[name], self._written[name] = True, written
            return
        # A single hyphen may begin a negative number, as in --max-gpus -1.
        if not equals and (not rest or rest[0].startswith("--")):
            raise UserError(f"{self.program}: {written} requires a value; write {written}=VALUE")
        text = text if equals else rest.pop(0)
        try:
            self._values[name] = parse(text)
        except (ValueError, SyntaxError) as error:
            kind = VALUE_KINDS.get(parse, "another value")
            raise UserError(f"{self.program}: {written}: invalid value '{text}'; write {kind}") from error
        self._written[name] = f"{written} {text}".rstrip()

    def _full_name(self, written: str) -> str:
        """Return the name of an option that is written in full or, as in argparse, by a unique prefix."""
        name = written.removeprefix("--")
        starts = [name] if name in self.table else [each for each in self.table if each.startswith(name)]
        if len(starts) > 1:
            known = ", ".join(f"--{each}" for each in starts)
            raise UserError(f"{self.program}: {written} is ambiguous; use one of {known}")
        if not starts:
            raise UserError(f"{self.program}: unknown option {written}; {suggest_name(name, self.table)}")
        return starts[0]

    def __getitem__(self, name: str) -> Any:
        return self._values.get(name, self.table[name].default if name in self.table else None)

    def __contains__(self, name: object) -> bool:
        return name in self._values

    def copy_from(self, name: str, other: str) -> None:
        """Copy the value and text of option `other` to option `name`."""
        self._values[name], self._written[name] = self[other], self.as_written(other)

    def as_written(self, *names: str) -> str:
        """Return options as they were written; an omitted option is described by the launcher's default."""
        return ", ".join(
            self._written.get(name, f"by default --{name} {self[name]}").strip() for name in names
        )
