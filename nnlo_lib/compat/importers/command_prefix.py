"""Strip what stands before a program: variables, wrappers such as `time` and `singularity exec`, launchers, Python."""

import re
import shlex
from dataclasses import dataclass, field
from pathlib import Path

from nnlo_lib.compat.importers.launch_settings import (
    LAUNCHERS,
    SUBMITTERS,
    WITH_ATTACHED_VALUES,
    LauncherOption,
    LaunchSettings,
)
from nnlo_lib.config import suggest_name
from nnlo_lib.core.errors import UserError

ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.S)
# Wrappers with the names of those options that have a value, and the number of their own arguments.
WRAPPERS = {
    "env": ("u unset C chdir S", 0), "time": ("o output f format", 0), "nohup": ("", 0), "nice": ("n adjustment", 0),
    "numactl": ("N m C i p P cpunodebind membind physcpubind interleave preferred localalloc", 0), "taskset": ("", 1),
    "stdbuf": ("", 0), "timeout": ("s signal k kill-after", 1), "exec": ("", 0), "command": ("", 0), "setsid": ("", 0),
    "ionice": ("c n", 0), "unbuffer": ("", 0), "catchsegv": ("", 0), "eval": ("", 0),
}  # fmt: skip
MEASURED = {"time", "nohup", "exec", "command", "setsid", "eval", "env", "catchsegv", "unbuffer", "stdbuf"}
# Options of containers that have a value; the image is the next argument, or the value of --image.
CONTAINERS = {
    "singularity": "B bind H home pwd W workdir S scratch env env-file app overlay security hostname network fusemount",
    "apptainer": "B bind H home pwd W workdir S scratch env env-file app overlay security hostname network fusemount",
    "shifter": "i image V volume e env env-file w workdir m module E entrypoint",
    "docker": "v volume e env env-file w workdir gpus name u user network shm-size ipc ulimit device runtime mount p",
    "podman": "v volume e env env-file w workdir gpus name u user network shm-size ipc ulimit device runtime mount p",
    "podman-hpc": "v volume e env env-file w workdir name u user network shm-size ipc ulimit device mount p",
}
RANKS_ONLY = ("singularity", "apptainer", "shifter")  # containers in which ranks of MPI can start
CONTAINER_NOTES = {
    True: "ranks start in this container, whose image needs nnlo; the rest of nnlo runs outside",
    False: "ranks of MPI cannot start in this container; start nnlo in the image, or convert the image for apptainer",
}
# `python -m` runs the program that follows these modules.
MODULE_WRAPPERS = {"mpi4py", "mpi4py.run", "cProfile", "profile", "pdb", "memory_profiler", "trace"}
SHELLS = {"bash", "sh", "zsh", "ksh", "dash", "source", "."}
RUNNERS = {"conda", "mamba", "micromamba", "pipenv", "poetry", "uv"}


@dataclass
class StartedProgram:
    """A program, its arguments, and what was stripped before it.

    Attributes:
        words: program and arguments.
        environment: variables that are set only for this command.
        launcher: name of the launcher of ranks, or an empty string.
        job: options of a command that submits the job, such as `sbatch -n 4`.
        step: options of the launcher.
        remarks: wrappers, with their meaning here.
        container: command of a container, or an empty string.
    """

    words: list[str]
    environment: dict[str, str] = field(default_factory=dict)
    launcher: str = ""
    job: LaunchSettings = field(default_factory=LaunchSettings)
    step: LaunchSettings = field(default_factory=LaunchSettings)
    remarks: list[str] = field(default_factory=list)
    container: str = ""

    @property
    def name(self) -> str:
        """File name of the program without `.py`; an empty string if there is no program."""
        return Path(self.words[0]).name.removesuffix(".py") if self.words else ""


def strip_prefix(words: list[str]) -> StartedProgram:
    """Return the program of a command. Raises UserError if an option of a launcher is unknown or not valid."""
    program = StartedProgram(list(words))
    while program.words and _strip_one(program):
        pass
    return program


def _strip_one(program: StartedProgram) -> bool:
    """Strip one variable, wrapper or launcher; return False if the first word is the program itself."""
    first = program.words[0]
    name = Path(first).name
    if assignment := ASSIGNMENT.fullmatch(first):
        program.environment[assignment[1]] = assignment[2]
        program.words.pop(0)
    elif name in LAUNCHERS:
        program.launcher = name
        program.words = parse_options(name, LAUNCHERS[name], program.words[1:], program.step)
        if ":" in program.words:
            raise UserError(
                f"{name}: several programs are separated by `:`; import one of them with the number of all ranks"
            )
    elif name in SUBMITTERS:
        program.words = parse_options(name, SUBMITTERS[name], program.words[1:], program.job)
        program.words = _submitted(program)
    elif name in WRAPPERS:
        _strip_wrapper(program, name)
    elif name in CONTAINERS:
        _strip_container(program, name)
    elif name in RUNNERS and program.words[1:2] == ["run"]:
        program.remarks.append(f"{name} run: start nnlo in its own environment instead")
        program.words = _without_options(program.words[2:], {"n", "name", "p", "prefix"})
    elif re.fullmatch(r"python[\d.]*", name):
        return _strip_python(program)
    else:
        return False
    return True


def parse_options(
    launcher: str, table: dict[str, LauncherOption], words: list[str], settings: LaunchSettings
) -> list[str]:
    """Add the options at the start of `words`, which follow the launcher's name, to `settings`; return the other words.

    Raises UserError if an option is unknown, or its value is missing or not valid.
    """
    while words and words[0].startswith("-") and words[0] != "-":
        written, equals, value = words[0].partition("=")
        name, attached = written.lstrip("-"), ""
        if name not in table and written[1] != "-" and launcher in WITH_ATTACHED_VALUES:
            name, attached = written[1], words[0][2:]
            written, equals, value = f"-{name}", "", attached
        option = table.get(name)
        if option is None:
            raise UserError(f"{launcher}: unknown launcher option {written}; {suggest_name(name, table)}")
        values = [value] if equals or attached else words[1 : 1 + option.value_count]
        if len(values) < option.value_count and not (equals or attached):
            raise UserError(f"{launcher}: {written} requires a value; write it after the option")
        taken = 1 if equals or attached else 1 + option.value_count
        words = words[taken:]
        text = " ".join([written, *values]) if option.value_count else written
        settings.add(option.meaning, " ".join(values), text)
    return words


def _submitted(program: StartedProgram) -> list[str]:
    """Return the command that a job runs: its own words, `--wrap`, or a script for a shell."""
    if "wrap" in program.job.texts:
        return ["bash", "-c", program.job.texts["wrap"]]
    words = program.words
    if len(words) == 1 and re.search(r"\s", words[0]):  # bsub "mpirun ..."
        return ["bash", "-c", words[0]]
    return (
        ["bash", *words]
        if words and Path(words[0]).suffix in (".sh", ".bash", ".slurm", ".lsf", ".sbatch", ".job")
        else words
    )


def _without_options(words: list[str], valued: set[str]) -> list[str]:
    """Return the words after the leading options; the options in `valued` have a value."""
    while words and words[0].startswith("-") and words[0] not in ("-", "--"):
        written = words[0].lstrip("-")
        words = words[2:] if written in valued else words[1:]
    return words[1:] if words[:1] == ["--"] else words


def _strip_wrapper(program: StartedProgram, name: str) -> None:
    valued, arguments = WRAPPERS[name]
    start = len(program.words)
    rest = _without_options(program.words[1:], set(valued.split()))
    if name == "taskset" and "-c" in program.words[1:3]:  # `taskset -c 0-3`, or `taskset MASK`
        arguments = 1
    rest = rest[arguments:]
    if name not in MEASURED:
        written = " ".join(program.words[: start - len(rest)])
        program.remarks.append(f"{written}: no effect on the experiment; start nnlo with it if you need it")
    program.words = rest


def _strip_container(program: StartedProgram, name: str) -> None:
    words = _without_options(program.words[1:], {"c", "config"}) if name != "shifter" else program.words[1:]
    if name != "shifter":
        if words[:1] not in (["exec"], ["run"]):
            raise UserError(
                f"{name}: expected exec or run, got '{' '.join(words[:1])}'; import the command that trains"
            )
        words = words[1:]
    valued = set(CONTAINERS[name].split())
    rest = _without_options(words, valued)
    options = words[: len(words) - len(rest)]
    image = [] if any(word.lstrip("-").split("=")[0] in ("i", "image") for word in options) else rest[:1]
    rest = rest[len(image) :]
    written = " ".join(program.words[: len(program.words) - len(rest)])
    program.remarks.append(f"{written}: {CONTAINER_NOTES[name in RANKS_ONLY]}")
    if name in RANKS_ONLY:
        program.container = shlex.join(program.words[: len(program.words) - len(rest)])
    program.words = rest


def _strip_python(program: StartedProgram) -> bool:
    """Strip the interpreter; return False if the program is the text after -c."""
    words = program.words[1:]
    while words and words[0].startswith("-"):
        option = words.pop(0)
        if option.endswith("m") and option != "-m" and not option.startswith("--"):
            option = "-m"
        if option == "-m" and words:
            module = words.pop(0)
            if module in MODULE_WRAPPERS:
                words = _without_options(words, {"o", "s"})
                continue
            words = [module.replace("nnlo.", "").rpartition(".")[2], *words]
            break
        if option == "-c":
            program.words = ["python -c", *words]
            return False
        if option in ("-W", "-X"):
            words = words[1:]
    program.words = words
    return True
