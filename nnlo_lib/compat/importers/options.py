"""The options of an old launcher: what each takes, what it was by default, and where it goes."""

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nnlo_lib.config import suggest_name
from nnlo_lib.core.errors import UserError


@dataclass(frozen=True)
class OptionSpec:
    """One option. kind: reads its word, None for a flag; key: of the experiment, which takes the value as it is;

    says: what became of it, where it has no key; missing: why the key, or any, is not here.
    """

    parse: Callable[[str], Any] | None = str
    default: Any = None
    key: str = ""
    note: str = ""
    missing_reason: str = ""


def flag_option(says: str = "", missing: str = "", key: str = "") -> OptionSpec:
    """Describe an option without a value."""
    return OptionSpec(None, False, key, says, missing)


def parse_bool(text: str) -> bool:
    """Read a boolean as PyDTNN does: true, 1 and yes; the rest is false."""
    return text.lower() in ("true", "1", "yes")


def parse_arguments(text: str) -> dict[str, Any]:
    """Read arguments as Python writes them, like {'lr': 0.1}."""
    value = ast.literal_eval(text)
    if not isinstance(value, dict):
        raise ValueError("no arguments")
    return value


class ParsedOptions:
    """What was given of a table of options; positional words first."""

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
        free = list(positional)
        rest = list(words)
        while rest:
            word = rest.pop(0)
            if word.startswith("--"):
                self._read(word, rest)
            elif free:
                self._values[free[0]], self._written[free.pop(0)] = word, word
            else:
                raise UserError(f"{program}: what is '{word}'? It stands behind no option that takes a value")
        if free:
            raise UserError(f"{program}: {free[0]} is not given")

    def _read(self, word: str, rest: list[str]) -> None:
        written, equals, text = word.partition("=")
        name = self._known(written)
        kind = self.table[name].parse
        if kind is None:
            if equals:
                raise UserError(f"{self.program}: {written} takes no value, but has '{text}'")
            self._values[name], self._written[name] = True, written
            return
        if not equals and (not rest or rest[0].startswith("--")):
            raise UserError(f"{self.program}: {written} needs a value")
        text = text if equals else rest.pop(0)
        try:
            self._values[name] = kind(text)
        except (ValueError, SyntaxError) as error:
            raise UserError(f"{self.program}: {written} cannot be '{text}'") from error
        self._written[name] = f"{written} {text}".rstrip()

    def _known(self, written: str) -> str:
        """Return the option that is meant; argparse allows any beginning that is unique."""
        name = written.removeprefix("--")
        starts = [name] if name in self.table else [each for each in self.table if each.startswith(name)]
        if len(starts) != 1:
            why = (
                f"may be {', '.join(f'--{each}' for each in starts)}"
                if starts
                else suggest_name(name, self.table)
            )
            raise UserError(f"{self.program} has no option {written}; {why}")
        return starts[0]

    def __getitem__(self, name: str) -> Any:
        return self._values.get(name, self.table[name].default if name in self.table else None)

    def copy_from(self, name: str, other: str) -> None:
        """Let one option say what another does."""
        self._values[name], self._written[name] = self[other], self.as_written(other)

    def __contains__(self, name: object) -> bool:
        return name in self._values

    def as_written(self, *names: str) -> str:
        """Return options as they were written, or that they are the old defaults."""
        return ", ".join(
            self._written.get(name, f"by default --{name} {self[name]}").strip() for name in names
        )

    def given_options(self) -> Iterator[tuple[str, OptionSpec]]:
        """Yield what was given of the table."""
        yield from ((name, self.table[name]) for name in self._values if name in self.table)
