"""Parser of a command line: program, arguments, and options of the launcher."""

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from nnlo_lib.config import suggest_name
from nnlo_lib.core.errors import UserError

PROMPT = re.compile(r"^\s*[$>]\s+")
ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=.*", re.S)
ATTACHED = re.compile(r"-([a-zA-Z])(\d+)")  # srun -n4
RANKS = {"np", "n", "nrs", "ntasks", "nproc"}
GPUS = {"g", "gpu_per_rs", "gpus-per-task"}
# Options of mpirun (Open MPI, MPICH), jsrun and srun with their number of values, without which the parser
# could not find the program.
PLACEMENT_OPTIONS = {
    "H": 1, "host": 1, "hosts": 1, "hostfile": 1, "machinefile": 1, "f": 1, "map-by": 1, "rank-by": 1, "bind-to": 1,
    "N": 1, "npernode": 1, "ppn": 1, "x": 1, "mca": 2, "genv": 2, "genvall": 0, "wdir": 1, "tag-output": 0,
    "oversubscribe": 0, "allow-run-as-root": 0, "report-bindings": 0, "a": 1, "b": 1, "bind": 1, "cpu_per_rs": 1,
    "c": 1, "tasks_per_rs": 1, "rs_per_host": 1, "r": 1, "nodes": 1, "gres": 1, "mpi": 1, "cpus-per-task": 1, "q": 0, "l": 0,
}  # fmt: skip
COPIES_LAUNCHERS = {
    "mpirun",
    "mpiexec",
    "orterun",
}  # -c is the number of ranks; of jsrun and srun, CPUs per rank
LAUNCHERS = {"mpirun", "mpiexec", "orterun", "jsrun", "srun"}
SHELL_COMMANDS = {"export", "cd", "source"}


@dataclass(frozen=True)
class CommandLine:
    """Program of a command, its arguments and the options of its launcher.

    Attributes:
        program: file name of the program without `.py`.
        words: arguments of the program.
        text: the command without the lines that only prepare the shell.
        path: program as it was written.
        ranks: number of processes.
        gpus: number of GPUs given to the launcher; 0 if the command gives none.
        threads: value of OMP_NUM_THREADS, 1 if it is not set.
        placement_options: options of the launcher that affect only the placement of processes.
    """

    program: str
    words: tuple[str, ...]
    text: str
    path: str = ""
    ranks: int = 1
    gpus: int = 0
    threads: int = 1
    placement_options: tuple[str, ...] = ()


def parse_command(words: Sequence[str]) -> CommandLine:
    """Parse a command given as one string in shell syntax or as its words.

    Raises UserError unless there is exactly one command that starts a program.
    """
    text = words[0] if len(words) == 1 else shlex.join(words)
    lines = list(_lines(text))
    main = [line for line in lines if line[0] not in SHELL_COMMANDS]
    if len(main) != 1:
        raise UserError(f"expected one command, got {len(main)}; quote the whole command: nnlo import '...'")
    exported = [word for line in lines if line[0] == "export" for word in line[1:]]
    # Exported variables become assignments before the command, which have the same effect.
    return _launched([*exported, *main[0]], "; ".join(shlex.join(line) for line in main))


def _lines(text: str) -> Iterator[list[str]]:
    for line in re.sub(r"\\\n", " ", text).splitlines():
        try:
            words = shlex.split(PROMPT.sub("", line), comments=True)
        except ValueError as error:
            raise UserError(f"cannot parse the command ({error}): {line}; check its quotes") from error
        if words:
            yield words


def _launched(words: list[str], text: str) -> CommandLine:
    """Strip environment, launcher and interpreter from a command."""
    environment = {}
    while words and ASSIGNMENT.fullmatch(words[0]):
        name, _, environment[name] = words.pop(0).partition("=")
    counts: dict[str, int] = {}
    places: list[str] = []
    while words and Path(words[0]).name in LAUNCHERS:
        ranks = RANKS | {"c"} if Path(words[0]).name in COPIES_LAUNCHERS else RANKS
        words = _launcher(words[1:], ranks, counts, places)
    if words and re.fullmatch(r"python[\d.]*", Path(words[0]).name):
        words = words[1:]
        while words and words[0].startswith("-"):
            words = words[1:]
    if not words:
        raise UserError("the command has no program; add the program after the launcher's options")
    threads = _count(environment.get("OMP_NUM_THREADS", "1"), "OMP_NUM_THREADS")
    program = Path(words[0]).name.removesuffix(".py")
    return CommandLine(
        program,
        tuple(words[1:]),
        text,
        words[0],
        counts.get("ranks", 1),
        counts.get("gpus", 0),
        threads,
        tuple(places),
    )


def _launcher(words: list[str], ranks: set[str], counts: dict[str, int], places: list[str]) -> list[str]:
    """Parse a launcher's options and return the words after them.

    Args:
        words: words of the command after the launcher.
        ranks: names of the options that give the number of ranks.
        counts: receives the numbers of `ranks` and `gpus`.
        places: receives the options that affect only the placement.
    """
    while words and words[0].startswith("-"):
        written, equals, value = words[0].partition("=")
        values = [value] if equals else []
        if attached := ATTACHED.fullmatch(written):
            written, values = f"-{attached[1]}", [attached[2]]
        name = written.lstrip("-")
        value_count = 1 if name in ranks | GPUS else PLACEMENT_OPTIONS.get(name)
        if value_count is None:
            raise UserError(
                f"unknown launcher option {written}; {suggest_name(name, RANKS | GPUS | set(PLACEMENT_OPTIONS))}"
            )
        # The option itself and its values, except a value written with `=` or attached, as in -n4.
        taken = 1 + value_count - len(values) if value_count else 1
        values, words = [*values, *words[1:taken]], words[taken:]
        if name in ranks | GPUS:
            counts["ranks" if name in ranks else "gpus"] = _count(values[0] if values else "", written)
        else:
            places.append(" ".join([written, *values]))
    return words


def _count(text: str, option: str) -> int:
    if not text.isdigit():
        raise UserError(f"{option}: expected a non-negative integer, got '{text}'")
    return int(text)
