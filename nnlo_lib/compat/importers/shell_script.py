"""Commands of a shell text or job script, in their order, with variables and the settings of their launchers.

Headers of job scripts are `#SBATCH` of Slurm and `#BSUB` of LSF.
"""

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from nnlo_lib.compat.importers.command_prefix import SHELLS, StartedProgram, parse_options, strip_prefix
from nnlo_lib.compat.importers.launch_settings import SUBMITTERS, LaunchSettings, RankLayout
from nnlo_lib.compat.importers.shell_syntax import (
    SUBSTITUTED,
    ShellCommand,
    ShellVariables,
    shell_words,
    split_commands,
)
from nnlo_lib.core.errors import UserError

HEADER = re.compile(r"^#(SBATCH|BSUB|PBS|COBALT|\$)\s+(.*)$")
HERE_DOCUMENT = re.compile(r"\b(?:sbatch|bsub)\b.*<<")
PROGRAMS = {"SBATCH": "sbatch", "BSUB": "bsub"}
OTHER_SYSTEM = "nnlo reads the headers of Slurm and LSF only; set the `resources` section"
PROMPT = re.compile(r"^[ \t]*(?:\([\w.-]+\)[ \t]*)?(?:\[?\w+@[\w.-]+[^$#%\n]*[$#%]|[$>%])[ \t]+", re.M)
LEADING = re.compile(r"^(?:(?:do|then|else|\{|!)\s+)+")
CLOSING = {"do", "done", "then", "fi", "else", "{", "}", "esac", ")"}
CONDITIONAL = {"if", "elif", "while", "until", "case", "select", "function", "trap"}
LOOP = re.compile(r"for\s+(\w+)\s+in\s+(.*)", re.S)
SUBSTITUTED_TEXT = re.compile(SUBSTITUTED.rpartition("|")[0])  # $(command) and `command`
SCRIPT_ARGUMENTS = re.compile(r"\$[@*]|\$\{[@*](:[^}]*)?\}")  # known only when the script starts
# The assignments and names of `export A=1 B="x y" C`.
EXPORTED = re.compile(
    r"""[A-Za-z_]\w*\+?=(?:'[^']*'|"(?:\\.|[^"\\])*"|\$\([^)]*\)|[^\s'"])*|[A-Za-z_]\w*(?=\s|$)"""
)
EXPORTS = {"export", "setenv", "declare", "typeset", "readonly", "local"}
NO_EFFECT = {
    "echo", "printf", "date", "mkdir", "set", "ulimit", "umask", "hostname", "ls", "pwd", "cat", "tee", "sleep", "wait", "exit",
    "true", "false", ":", "shopt", "unset", "which", "type", "nvidia-smi", "free", "lscpu", "touch", "head", "tail", "grep",
    "less", "bkill", "scancel", "squeue", "bjobs", "env", "printenv", "return", "test", "[", "[[", "alias", "popd", "stty", "w",
}  # fmt: skip
PREPARES = {
    "module", "ml", "conda", "mamba", "micromamba", "spack", "activate", "deactivate", "source", ".", "use",
}  # fmt: skip
PREPARATION = "prepares the shell; run it before nnlo"
FOLDERS = {"cd", "pushd"}
SUBMISSION_VARIABLES = {"SLURM_SUBMIT_DIR", "LS_SUBCWD", "PWD", "PBS_O_WORKDIR"}


@dataclass
class StartedCommand:
    """One command of a text that starts a program.

    Attributes:
        line: number of its line.
        text: the command, with the values of its variables.
        program: the program without its launcher and wrappers.
        environment: variables that the program inherits from the text.
        unset: variables of the command that the text does not set.
        redirections: redirections of the command.
    """

    line: int
    text: str
    program: StartedProgram
    environment: dict[str, str]
    unset: list[str] = field(default_factory=list)
    redirections: list[str] = field(default_factory=list)


@dataclass
class ShellScript:
    """Commands of a text, and how each of its other lines is understood.

    Attributes:
        commands: commands that start a program, in their order.
        job: options of the job: the header, and the commands that submit the script.
        understood: other lines with their meaning.
        unknown: lines that are not understood, with the reason.
    """

    commands: list[StartedCommand] = field(default_factory=list)
    job: LaunchSettings = field(default_factory=LaunchSettings)
    understood: list[str] = field(default_factory=list)
    unknown: list[tuple[str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._variables = ShellVariables()
        self._marks: set[str] = set()
        self._depth = 0

    def read(self, text: str) -> None:
        """Read a text. Raises UserError if a quote is not closed, or an option of a launcher is not valid."""
        self.job = read_header(text).merged(self.job)
        for command in split_commands(PROMPT.sub("", text)):
            self._read_command(command)

    def _read_command(self, command: ShellCommand) -> None:
        self._set_job_variables()
        text = LEADING.sub("", command.text.strip()).strip()
        first = text.split(maxsplit=1)[0] if text else ""
        if not text or first in CLOSING or text in self._marks or text.startswith("#!"):
            return
        line = " ".join(text.split())
        where = f"line {command.line}: {line if len(line) <= 70 else f'{line[:67]}...'}"
        if loop := LOOP.fullmatch(text):
            self._read_loop(loop, where)
        elif first in CONDITIONAL or first.startswith("for"):
            self.unknown.append(
                (where, "conditions and loops are not evaluated; the commands inside are read once")
            )
        elif self._variables.assign(text):
            self.understood.append(f"{where} (variable)")
        elif first in EXPORTS:
            self._export(text, where)
        else:
            self._start(command, text, where)

    def _read_loop(self, loop: re.Match[str], where: str) -> None:
        """Set the variable of a loop to its first value."""
        values = shell_words(self._variables.expanded(loop[2])).words
        if not values or any(mark in values[0] for mark in "$`"):
            self.unknown.append((where, "the values of the loop are not written in the text"))
            return
        self._variables.values[loop[1]] = values[:1]
        if len(values) > 1:
            reason = f"only the first value, {loop[1]}={values[0]}, is imported; import the others separately"
            self.unknown.append((where, reason))

    def _export(self, text: str, where: str) -> None:
        command, _, rest = text.partition(" ")
        if command == "setenv":
            rest = "=".join(rest.split(maxsplit=1))
        for word in EXPORTED.findall(rest):
            if "=" in word:
                self._variables.assign(word)
            self._variables.exported.add(word.partition("=")[0].removesuffix("+"))
        self.understood.append(f"{where} (variable)")

    def _start(self, command: ShellCommand, text: str, where: str) -> None:
        expanded = self._variables.expanded(text)
        parsed = shell_words(expanded)
        self._marks.update(parsed.inputs)
        if not parsed.words:
            return
        name = Path(parsed.words[0]).name
        if name in FOLDERS:
            self._change_folder(parsed.words[1:], where)
        elif name in NO_EFFECT and not (name == "env" and len(parsed.words) > 1):
            self.understood.append(f"{where} (no effect on the experiment)")
        elif name in PREPARES and "run" not in parsed.words[1:2]:
            self.understood.append(f"{where} ({PREPARATION})")
        else:
            self._start_program(
                command.line, expanded, strip_prefix(parsed.words), parsed.redirections, parsed.inputs
            )

    def _change_folder(self, words: Sequence[str], where: str) -> None:
        own = words and any(name in words[0] for name in SUBMISSION_VARIABLES)
        note = (
            "the folder of the job"
            if own
            else "relative paths of the commands belong to this folder; run nnlo there"
        )
        self.understood.append(f"{where} ({note})")

    def _start_program(
        self, line: int, text: str, program: StartedProgram, redirections: list[str], inputs: list[str]
    ) -> None:
        """Record a program, or read the text that a shell runs."""
        self.job = self.job.merged(program.job)
        inner = _script_text(program, inputs)
        if inner is not None and self._depth < 3:
            first = len(self.commands)
            self._depth += 1
            self.read(inner)
            self._depth -= 1
            for command in self.commands[first:]:
                _start_by(command, program)
        elif program.words:
            unknown = [*self._variables.unset, *SUBSTITUTED_TEXT.findall(text)]
            used = [name for name in dict.fromkeys(unknown) if any(name in word for word in program.words)]
            own = [word for word in program.words[1:] if SCRIPT_ARGUMENTS.fullmatch(word)]
            used = list(dict.fromkeys([*used, *own]))
            program.words = [word for word in program.words if word not in own]
            environment = {**self._variables.environment, **program.environment}
            self.commands.append(StartedCommand(line, text, program, environment, used, redirections))
        elif program.launcher:
            raise UserError("the command has no program; add the program after the launcher's options")

    def _set_job_variables(self) -> None:
        """Set the variables in which Slurm and LSF pass the numbers of the job."""
        numbers = dict(self.job.numbers)
        ranks, source = RankLayout("srun", self.job).ranks
        if source:
            numbers["ranks"] = ranks
        names = {
            "ranks": ("SLURM_NTASKS", "SLURM_NPROCS", "LSB_DJOB_NUMPROC"), "nodes": ("SLURM_NNODES", "SLURM_JOB_NUM_NODES"),
            "threads": ("SLURM_CPUS_PER_TASK",), "ranks_per_node": ("SLURM_NTASKS_PER_NODE",),
        }  # fmt: skip
        for meaning, variables in names.items():
            if meaning in numbers:
                for name in variables:
                    self._variables.values.setdefault(name, [str(numbers[meaning])])


def read_script(text: str) -> ShellScript:
    """Return the commands of a text. Raises UserError if it cannot be parsed."""
    script = ShellScript()
    script.read(text)
    return script


def _start_by(command: StartedCommand, shell: StartedProgram) -> None:
    """Add the launcher, variables and wrappers of a shell to a command that this shell starts."""
    command.environment = {**shell.environment, **command.environment}
    command.program.remarks[:0] = shell.remarks
    command.program.container = command.program.container or shell.container
    # The launcher starts the shell once for each rank.
    if shell.launcher and not command.program.launcher:
        command.program.launcher, command.program.step = shell.launcher, shell.step


def _script_text(program: StartedProgram, inputs: list[str]) -> str | None:
    """Return the text that a shell or a submitted job runs, or None if the program is no shell."""
    words = program.words
    if not words and inputs and Path(inputs[0]).is_file():  # bsub < job.lsf
        return Path(inputs[0]).read_text(errors="replace")
    if not words and inputs:  # a here-document, whose lines are read as commands
        return ""
    if not words or (program.name not in SHELLS and Path(words[0]).suffix not in (".sh", ".bash")):
        return None
    if program.name in SHELLS:
        words = [
            word
            for word in words[1:]
            if word == "-c" or not re.fullmatch(r"-[a-z]+", word) or word.endswith("c")
        ]
    if words and re.fullmatch(r"-[a-z]*c", words[0]):
        return words[1] if len(words) > 1 else ""
    if words and Path(words[0]).is_file():
        return Path(words[0]).read_text(errors="replace")
    return None


def read_header(text: str) -> LaunchSettings:
    """Return the options in the header of a job script.

    Raises UserError if an option is unknown or not valid.
    """
    settings, has_started = LaunchSettings(), False
    for number, line in enumerate(text.splitlines(), start=1):
        found = HEADER.match(line)
        # Slurm ignores its lines after the first command; LSF reads all of them.
        has_started = has_started or (bool(line.strip()) and not line.lstrip().startswith("#"))
        if HERE_DOCUMENT.search(line):  # the submitted script follows
            has_started = False
        if not found:
            continue
        system, options = found[1], re.sub(r"\s#.*", "", found[2])
        if system == "SBATCH" and has_started:
            settings.remarks.append(
                f"line {number}: {line.strip()}: Slurm ignores it after the first command"
            )
        elif system not in PROGRAMS:
            settings.written.append(line.strip())
            settings.untranslated.append((line.strip(), OTHER_SYSTEM))
        else:
            _add(settings, PROGRAMS[system], options, number)
    return settings


def _add(settings: LaunchSettings, program: str, options: str, number: int) -> None:
    try:
        rest = parse_options(program, SUBMITTERS[program], shlex.split(options), settings)
    except ValueError as error:
        raise UserError(
            f"line {number}: cannot parse the header ({error}): {options}; check its quotes"
        ) from error
    except UserError as error:
        raise UserError(f"line {number}: {error}") from error
    if rest:
        raise UserError(
            f"line {number}: unexpected word '{rest[0]}' in the header; write it after its option"
        )
