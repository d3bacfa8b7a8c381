"""Commands that train in a text or job script, with their variables, launchers and the headers of Slurm and LSF.

Each command is split by shlex. Other lines are listed and not read; a text that needs a shell is refused.
"""

import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from nnlo_lib.compat.importers.launch_settings import (
    LAUNCHERS,
    NOTES,
    SUBMITTERS,
    LaunchSettings,
    add_options,
)
from nnlo_lib.core.errors import UserError

HEADER = re.compile(r"#(SBATCH|BSUB|PBS|COBALT)\s+(.*)")
PROGRAMS = {"SBATCH": "sbatch", "BSUB": "bsub"}
OTHER_SYSTEM = "nnlo reads the headers of Slurm and LSF only; set the `resources` section"
PROMPT = re.compile(r"^[ \t]*(?:\([\w.-]+\)[ \t]*)?(?:\[?\w+@[\w.-]+[^$#%\n]*[$#%]|[$>%])[ \t]+", re.M)
PIECE = re.compile(
    r"""(?P<kept>'[^']*'|"(?:\\.|[^"\\])*"|\\.|\$\(.*\)|`[^`]*`|<<+|(?<=\w),~?[<>],)  # `val_loss,~<,4` is NNLO's
    |(?P<comment>(?<!\S)\#.*)
    |(?P<redirection>(?:(?<!\S)\d|&)?(?:>>?|<)&?[ \t]*[^\s;|&]+)
    |(?P<end>&&|\|[|&]?|;|&|(?<!=)\(|\))""",
    re.X,
)
NEEDS_A_SHELL = re.compile(
    r"""(?:for|while|until|if|case|select|function|\{|!)(?:\s|\(|$)|[A-Za-z_]\w*\+?=\(
    |(?:[^'"]|'[^']*'|"[^"]*")*?<<|(?:.*[\s/])?(?:ba|z|k|da)?sh\s+(?:-\w+\s+)*-\w*c\s""",
    re.X,
)
PASTE = "paste the command line that trains: nnlo import 'mpirun -np 4 ...'"
REFERENCE = re.compile(r"\$(?:\w+|\{\w+\})")
EXPANDED = re.compile(rf"""(?P<literal>'[^']*'|\\.)|(?P<quoted>"(?:\\.|[^"\\])*")|{REFERENCE.pattern}""")
ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.S)
# Variables in which Slurm and LSF pass the numbers of the job.
JOB_VARIABLES = {
    "SLURM_NTASKS": "ranks", "SLURM_NPROCS": "ranks", "LSB_DJOB_NUMPROC": "ranks", "SLURM_NNODES": "nodes",
    "SLURM_JOB_NUM_NODES": "nodes", "SLURM_CPUS_PER_TASK": "threads", "SLURM_NTASKS_PER_NODE": "ranks_per_node",
}  # fmt: skip
CONTAINERS = {"singularity", "apptainer", "shifter", "docker", "podman", "podman-hpc"}
RANKS_ONLY = {"singularity", "apptainer", "shifter"}  # containers in which ranks of MPI can start
CONTAINER_NOTES = {
    True: "ranks start in this container, whose image needs nnlo; the rest of nnlo runs outside",
    False: "ranks of MPI cannot start in this container; start nnlo in the image, or convert the image for apptainer",
}
WRAPPERS = {
    "env", "time", "nohup", "nice", "numactl", "taskset", "timeout", "stdbuf", "exec", "command", "setsid", "ionice",
    "unbuffer", "conda", "mamba", "micromamba", "pipenv", "poetry", "uv",
}  # fmt: skip
PYTHON = re.compile(r"python[\d.]*")


@dataclass
class StartedCommand:
    """A command, whose words are those of the program after `strip`."""

    line: int  # from 1
    text: str
    words: list[str]
    environment: dict[str, str]
    launcher: str = ""
    # options of the headers, and of a command that submits the job, such as `salloc -n 4`
    job: LaunchSettings = field(default_factory=LaunchSettings)
    # options of the launcher, which take precedence
    step: LaunchSettings = field(default_factory=LaunchSettings)
    # parts of the text that affect only the machine, and lines that are not read
    differences: list[str] = field(default_factory=list)
    # parts of the text without an equivalent, with the reason
    lost: list[tuple[str, str]] = field(default_factory=list)
    container: str = ""

    @property
    def program(self) -> str:
        """File name of the program without `.py`, or the last part of a module's name."""
        name = Path(self.words[0]).name.removesuffix(".py") if self.words else ""
        return name.removeprefix("nnlo.").removeprefix("pydtnn.")

    @property
    def options(self) -> list[str]:
        """Words after the program."""
        return self.words[1:]

    @property
    def settings(self) -> LaunchSettings:
        """Options of the job and of the launcher."""
        return self.job.merged(self.step)

    @property
    def ranks(self) -> tuple[int, str]:
        """Number of ranks, and the options from which it follows; 1 without a launcher or an option."""
        if not self.launcher:
            return 1, ""
        settings = self.settings
        # One rank per node of the job, which some launchers ignore.
        by_nodes = settings.nodes and self.launcher not in ("aprun", "jsrun")
        nodes = (settings.nodes, settings.source("nodes", "hosts")) if by_nodes else (1, "")
        return self.step.ranks or settings.ranks or nodes

    def strip(self, kind_of: Callable[[str], str]) -> None:
        """Strip variables, launchers, containers and wrappers. Raises UserError if an option is not valid."""

        def starts(word: str) -> bool:
            return bool(kind_of(word)) or begins_command(word)

        while self.words and not kind_of(first := self.words[0]):
            name, rest = Path(first).name, self.words[1:]
            if assignment := ASSIGNMENT.fullmatch(first):
                self.environment[assignment[1]] = assignment[2]
            elif name in LAUNCHERS:
                self.launcher = name
                rest = add_options(name, LAUNCHERS[name], rest, self.step, starts)
            elif name in SUBMITTERS:
                rest = add_options(name, SUBMITTERS[name], rest, self.job, starts)
            elif begins_command(first) or (self.launcher and any(map(kind_of, rest))):
                own = 1 if name in CONTAINERS else 0  # `exec` of `singularity exec`
                ends = [number for number, word in enumerate(rest) if number >= own and starts(word)]
                # The program is unknown if there is no end.
                ends += [number for number, word in enumerate(rest) if not word.startswith("-")]
                rest = rest[ends[0] :] if ends else []
                self._add_wrapper(name, self.words[: len(self.words) - len(rest)])
            else:
                break
            self.words = rest

    def _add_wrapper(self, name: str, words: list[str]) -> None:
        written = shlex.join(words)
        self.environment |= {found[1]: found[2] for found in map(ASSIGNMENT.fullmatch, words) if found}
        if name in CONTAINERS:
            self.differences.append(f"{written}: {CONTAINER_NOTES[name in RANKS_ONLY]}")
            self.container = written if name in RANKS_ONLY else self.container
        elif not PYTHON.fullmatch(name):
            self.differences.append(f"{written}: not translated; start nnlo with it if you need it")


def begins_command(word: str) -> bool:
    """Return True if a program may follow a word: a launcher, container, wrapper or interpreter."""
    name = Path(word).name
    return name in {*LAUNCHERS, *SUBMITTERS, *CONTAINERS, *WRAPPERS} or bool(PYTHON.fullmatch(name))


class JobText:
    """Commands of a text that train, and its other lines."""

    def __init__(self, text: str, kind_of: Callable[[str], str]):
        self.commands: list[StartedCommand] = []
        self.others: list[StartedCommand] = []  # that do not train
        self.job = LaunchSettings()  # options in the headers
        self.lines: list[str] = []  # that are not read, with their meaning
        self.lost: list[tuple[str, str]] = []  # headers without an equivalent, with the reason
        self._kind_of = kind_of
        self._values: dict[str, str] = {}
        self._exported: set[str] = set()
        number, has_started = 1, False
        # A vertical tab marks the end of a continued line, so that lines are still counted.
        for line in re.sub(r"\\\r?\n", " \v", PROMPT.sub("", text)).split("\n"):
            if header := HEADER.match(line):
                self._read_header(f"line {number}: {line.strip()}", header, has_started)
            elif not re.match(r"\s*(#|$)", line):
                has_started = True
                if re.match(r"[^#]*\\[ \t]+(#.*)?\r?$", line.rpartition("\v")[2]):
                    raise UserError(
                        f"line {number + line.count(chr(11))}: spaces follow the backslash, so that the shell ends the "
                        "command there; remove what follows the backslash"
                    )
                for part in PIECE.sub(self._without_redirection, line.replace("\v", "")).split("\n"):
                    if part.strip():
                        self._read_command(number, part.strip())
            number += 1 + line.count("\v")

    def _without_redirection(self, piece: re.Match[str]) -> str:
        """Return a piece of a line; the end of a command becomes the end of a line."""
        if piece["redirection"]:
            self.lines.append(f"{piece[0]} ({NOTES['output']})")
        return "\n" if piece["end"] else piece["kept"] or ""

    def _read_header(self, where: str, header: re.Match[str], has_started: bool) -> None:
        system, options = header[1], re.sub(r"\s#.*", "", header[2])
        if system not in PROGRAMS:
            self.lost.append((header[0].strip(), OTHER_SYSTEM))
        elif system == "SBATCH" and has_started:  # LSF reads all of its headers
            self.lines.append(f"{where} (Slurm ignores it after the first command)")
        else:
            program = PROGRAMS[system]
            try:
                rest = add_options(program, SUBMITTERS[program], shlex.split(options), self.job)
            except (ValueError, UserError) as error:
                raise UserError(f"{where.partition(': ')[0]}: {error}; check the header") from error
            if rest:
                raise UserError(f"{where}: unexpected word '{rest[0]}'; write it after its option")

    def _read_command(self, number: int, text: str) -> None:
        where = f"line {number}: {text if len(text) <= 70 else f'{text[:67]}...'}"
        if NEEDS_A_SHELL.match(text):
            raise UserError(
                f"{where}: loops, conditions, arrays, here-documents and `bash -c` are not read; {PASTE}"
            )
        try:
            words = shlex.split(self._expanded(text))
        except ValueError as error:
            raise UserError(
                f"cannot parse the command ({error}): {text}; close its quotes on the same line"
            ) from error
        is_export, has_output = words[0] == "export", "$(" in text or "`" in text
        names = [word for word in words[is_export:] if is_export and word.isidentifier()]
        assigned = [word.split("=", 1) for word in words[is_export:] if ASSIGNMENT.fullmatch(word)]
        if len(names) + len(assigned) + is_export == len(words) and not has_output:
            self._values |= dict(assigned)
            self._exported |= {*names, *(name for name, _ in assigned if is_export)}
            self.lines.append(f"{where} (variable)")
            return
        environment = {name: self._values[name] for name in sorted(self._exported & self._values.keys())}
        command = StartedCommand(number, " ".join(self._expanded(text).split()), words, environment)
        first = next((word for word in words if not ASSIGNMENT.fullmatch(word)), "")
        kinds = [self._kind_of(first), *(map(self._kind_of, words) if begins_command(first) else [])]
        kind = next(filter(None, kinds), "")
        if kind != "training":
            if found := re.match(r"(?:export\s+)?([A-Za-z_]\w*)\+?=", text):  # NAME=$(command), NAME+=value
                self._values.pop(found[1], None)
            self.others.append(command)
            self.lines.append(f"{where} ({'prepares data or software' if kind else 'not read'})")
        elif has_output:
            raise UserError(f"{where}: the output of a command is known only to the shell; write its value")
        else:
            command.strip(self._kind_of)
            self.commands.append(command)

    def _expanded(self, text: str) -> str:
        """Return a command with the values of its variables; references to unknown variables are kept."""

        def replace(found: re.Match[str]) -> str:
            if found["literal"]:
                return found[0]
            if found["quoted"]:
                return REFERENCE.sub(
                    lambda inner: re.sub(r'(["\\])', r"\\\1", self._value(inner[0])), found[0]
                )
            return " ".join(map(shlex.quote, self._value(found[0]).split()))

        return EXPANDED.sub(replace, text)

    def _value(self, reference: str) -> str:
        name, job = reference.strip("${}"), self.job
        meaning = JOB_VARIABLES.get(name, "")
        number = (job.ranks or (job.nodes,))[0] if meaning == "ranks" else job.get(meaning)
        return self._values.get(name, str(number or reference))
