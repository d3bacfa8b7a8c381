"""Tables of an imported launcher's options: type, default and translation of each; values such as times, sizes and hosts."""

import ast
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nnlo_lib.config import suggest_name
from nnlo_lib.core.errors import UserError

MEMORY_UNITS_MB = {"K": 1 / 1024, "M": 1, "G": 1024, "T": 1024**2}
MINUTES_PER_DAY = 1440


@dataclass(frozen=True)
class OptionSpec:
    """One option of an imported launcher.

    Attributes:
        parse: converts the text of the value; None for a flag without a value.
        default: value if the option is omitted.
        key: key of the experiment that takes the value unchanged.
        note: remark about an option without a key.
        missing_reason: reason why experiments lack the key, or any equivalent of the option.
    """

    parse: Callable[[str], Any] | None = str
    default: Any = None
    key: str = ""
    note: str = ""
    missing_reason: str = ""


def flag_option(note: str = "", missing: str = "", key: str = "") -> OptionSpec:
    """Return the specification of an option without a value; it sets `key`, if any, to True."""
    return OptionSpec(None, False, key, note, missing)


def parse_bool(text: str) -> bool:
    """Parse a boolean as PyDTNN does: true, 1 and yes are True, any other text is False."""
    return text.lower() in ("true", "1", "yes")


def parse_arguments(text: str) -> dict[str, Any]:
    """Parse arguments written as a Python dictionary, such as {'lr': 0.1}.

    Raises ValueError or SyntaxError if the text is not a dictionary of literals.
    """
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
    """Options of a command, parsed by a table; omitted options have their default values.

    Args:
        words: words of the command after the program.
        positional: names of the positional arguments, in their order.

    Raises:
        UserError: if an option is unknown or ambiguous, or if a value is missing, invalid or superfluous.
    """

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
                # Targets are assigned from left to right, so that pop must come second.
                self._values[free[0]], self._written[free.pop(0)] = word, word
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
        name = self._known(written)
        kind = self.table[name].parse
        if kind is None:
            if equals:
                raise UserError(f"{self.program}: {written} takes no value, got '{text}'; remove the value")
            self._values[name], self._written[name] = True, written
            return
        # A single hyphen may begin a negative number, as in --max-gpus -1.
        if not equals and (not rest or rest[0].startswith("--")):
            raise UserError(f"{self.program}: {written} requires a value; write {written}=VALUE")
        text = text if equals else rest.pop(0)
        try:
            self._values[name] = kind(text)
        except (ValueError, SyntaxError) as error:
            raise UserError(
                f"{self.program}: {written}: invalid value '{text}'; write {VALUE_KINDS.get(kind, 'another value')}"
            ) from error
        self._written[name] = f"{written} {text}".rstrip()

    def _known(self, written: str) -> str:
        """Return the full name of an option; like argparse, accept any unique prefix.

        Raises UserError if the option is unknown or ambiguous.
        """
        name = written.removeprefix("--")
        starts = [name] if name in self.table else [each for each in self.table if each.startswith(name)]
        if len(starts) != 1:
            fault = (
                f"{written} is ambiguous; use one of {', '.join(f'--{each}' for each in starts)}"
                if starts
                else f"unknown option {written}; {suggest_name(name, self.table)}"
            )
            raise UserError(f"{self.program}: {fault}")
        return starts[0]

    def __getitem__(self, name: str) -> Any:
        return self._values.get(name, self.table[name].default if name in self.table else None)

    def copy_from(self, name: str, other: str) -> None:
        """Copy the value and text of option `other` to option `name`."""
        self._values[name], self._written[name] = self[other], self.as_written(other)

    def __contains__(self, name: object) -> bool:
        return name in self._values

    def as_written(self, *names: str) -> str:
        """Return options as they were written; an omitted option is described by the launcher's default."""
        return ", ".join(
            self._written.get(name, f"by default --{name} {self[name]}").strip() for name in names
        )

    def given_options(self) -> Iterator[tuple[str, OptionSpec]]:
        """Yield the given options of the table with their specifications."""
        yield from ((name, self.table[name]) for name in self._values if name in self.table)


def parse_count(text: str, option: str) -> int:
    """Return a non-negative integer; `option` begins the error message. Raises UserError for other texts."""
    if not text.isascii() or not text.isdigit():
        hint = "; set the variable in the script, or write the number" if "$" in text or "`" in text else ""
        raise UserError(f"{option.split(' ')[0]}: expected a non-negative integer, got '{text}'{hint}")
    return int(text)


def slurm_minutes(text: str, option: str) -> int:
    """Return the minutes of a Slurm time: minutes, minutes:seconds, hours:minutes:seconds, or the same after days-.

    Raises UserError if a part is not a number.
    """
    days, dash, clock = text.rpartition("-")
    parts = [parse_count(part, option) for part in clock.split(":")]
    if dash:
        hours, minutes, seconds = [*parts, 0, 0][:3]
    else:
        hours, minutes, seconds = {1: [0, *parts, 0], 2: [0, *parts]}.get(len(parts), parts[:3])
    return parse_count(days or "0", option) * MINUTES_PER_DAY + hours * 60 + minutes + (seconds > 0)


def lsf_minutes(text: str, option: str) -> int:
    """Return the minutes of an LSF time, minutes or hours:minutes, without the host that may follow a slash.

    Raises UserError if a part is not a number.
    """
    *hours, minutes = [parse_count(part, option) for part in text.partition("/")[0].split(":")]
    return (hours[0] * 60 if hours else 0) + minutes


def size_mb(text: str, option: str) -> int:
    """Return a size of Slurm, such as 4G, in MB. Raises UserError for other texts."""
    found = re.fullmatch(r"(\d+)([KMGT]?)B?", text, re.I)
    if not found:
        raise UserError(f"{option.split(' ')[0]}: expected a size such as 4G, got '{text}'")
    return max(1, round(int(found[1]) * MEMORY_UNITS_MB[found[2].upper() or "M"]))


def host_slots(text: str) -> dict[str, str]:
    """Return the slots of each host in a list such as n1:2,n2; a host without a number has one slot."""
    hosts: dict[str, str] = {}
    for host in filter(None, text.split(",")):
        name, _, count = host.partition(":")
        is_number = count.isdigit() or not count
        hosts[name] = str(int(hosts.get(name, "0")) + int(count or 1)) if is_number else count
    return hosts


def hostfile_slots(path: Path) -> dict[str, str]:
    """Return the slots of each host in a file with lines such as `node1 slots=2` or `node1:2`."""
    hosts = {}
    for line in path.read_text(errors="replace").splitlines():
        if words := line.partition("#")[0].split():
            slots = next((word.removeprefix("slots=") for word in words if word.startswith("slots=")), "")
            name, _, count = words[0].partition(":")
            hosts[name] = slots or count or "1"
    return hosts


def environment_variables(text: str) -> dict[str, str]:
    """Return the variables of `NAME=value`, of `NAME value` (Hydra's -genv), or of Slurm's `ALL,NAME=value`."""
    if two := re.fullmatch(r"(\w+) (\S+)", text):
        return {two[1]: two[2]}
    return dict(word.split("=", 1) for word in text.split(",") if "=" in word)
