"""The command of a shell text that trains: program, arguments, ranks, and the rest of the text."""

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from nnlo_lib.compat.importers.shell.option_values import parse_count
from nnlo_lib.compat.importers.shell.rank_layout import RankLayout
from nnlo_lib.compat.importers.shell.shell_script import ShellScript, StartedCommand, read_script
from nnlo_lib.core.errors import UserError

OUTPUT_NOTE = "nnlo writes logs to the run folder"


@dataclass(frozen=True)
class CommandLine:
    """Program of a command, its arguments and the options of its launcher.

    Attributes:
        program: file name of the program without `.py`.
        words: arguments of the program.
        text: the command without the lines that only prepare the shell.
        path: program as it was written.
        layout: ranks, threads and GPUs.
        environment: variables that are set for the program.
        remarks: parts of the text that affect only the machine.
        untranslated: parts of the text without an equivalent, with the reason.
        written: options of launchers and jobs, and lines without an equivalent, as they were written.
        lines: the other lines of the text, with their meaning.
        container: command of a container, or an empty string.
    """

    program: str
    words: tuple[str, ...]
    text: str
    path: str = ""
    layout: RankLayout = field(default_factory=RankLayout)
    environment: dict[str, str] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()
    untranslated: tuple[tuple[str, str], ...] = ()
    written: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()
    container: str = ""

    @property
    def ranks(self) -> int:
        """Number of processes."""
        return self.layout.ranks[0]

    @property
    def threads(self) -> int:
        """OMP_NUM_THREADS, or the cores of a rank that the launcher gives, or 1."""
        written = self.environment.get("OMP_NUM_THREADS", "")
        return parse_count(written, "OMP_NUM_THREADS") if written else max(1, self.layout.threads[0])


def parse_command(
    words: Sequence[str], kind_of: Callable[[str], str] = lambda path: "training"
) -> CommandLine:
    """Parse a command given as one string in shell syntax or as its words.

    Args:
        words: one string, such as the text of a job script, or the words of one command.
        kind_of: returns training, preparation or an empty string for a program.

    Raises:
        UserError: if the text does not start exactly one program, and no program that trains.
    """
    script = read_script(words[0] if len(words) == 1 else shlex.join(words))
    return _command_line(script, *_chosen(script, kind_of))


def _chosen(
    script: ShellScript, kind_of: Callable[[str], str]
) -> tuple[StartedCommand, list[StartedCommand]]:
    """Return the first command that trains, and the commands that train after it; record all others."""
    trains = [each for each in script.commands if kind_of(each.program.words[0]) == "training"]
    if not trains and len(script.commands) != 1:
        names = ", ".join(dict.fromkeys(each.program.name for each in script.commands))
        raise UserError(
            f"expected one command, got {len(script.commands)}{f' ({names})' if names else ''}; pass a command or script "
            "that trains: nnlo import '...'"
        )
    chosen = trains[0] if trains else script.commands[0]
    for each in script.commands:
        where = f"line {each.line}: {' '.join(each.text.split())}"
        if each is chosen or each in trains:
            continue
        if kind_of(each.program.words[0]) == "preparation":
            script.understood.append(f"{where} (prepares data or software)")
        else:
            script.unknown.append((where, f"nnlo does not know the program {each.program.name}"))
    return chosen, trains[1:]


def _command_line(script: ShellScript, chosen: StartedCommand, others: list[StartedCommand]) -> CommandLine:
    program = chosen.program
    layout = RankLayout(program.launcher, script.job, program.step)
    settings = layout.settings
    untranslated = [*settings.untranslated, *script.unknown]
    untranslated += [
        (
            f"line {each.line}: {' '.join(each.text.split())}",
            "an experiment is one training; import it separately",
        )
        for each in others
    ]
    untranslated += [(name, "the text does not set this variable; write its value") for name in chosen.unset]
    if layout.has_unknown_ranks:
        source = settings.source("unknown_hosts") or program.launcher
        untranslated.append((source, "the number of ranks is not in the command; set parallel.ranks"))
    redirections = [f"{' '.join(chosen.redirections)}: {OUTPUT_NOTE}"] if chosen.redirections else []
    return CommandLine(
        program=program.name,
        words=tuple(program.words[1:]),
        text=" ".join(chosen.text.split()),
        path=program.words[0],
        layout=layout,
        environment={**chosen.environment, **settings.environment},
        remarks=(*settings.remarks, *program.remarks, *redirections),
        untranslated=tuple(untranslated),
        written=(
            *settings.written,
            *(source for source, _ in untranslated if source not in settings.written),
        ),
        lines=tuple(script.understood),
        container=program.container,
    )
