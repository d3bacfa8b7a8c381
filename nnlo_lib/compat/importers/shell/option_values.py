"""Values of launcher options: times, sizes, lists of hosts."""

import re
from pathlib import Path

from nnlo_lib.core.errors import UserError

MEMORY_UNITS_MB = {"K": 1 / 1024, "M": 1, "G": 1024, "T": 1024**2}
MINUTES_PER_DAY = 1440


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
        hosts[name] = (
            str(int(hosts.get(name, "0")) + int(count))
            if count.isdigit()
            else count or _one_more(hosts, name)
        )
    return hosts


def _one_more(hosts: dict[str, str], name: str) -> str:
    return str(int(hosts.get(name, "0")) + 1)


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
