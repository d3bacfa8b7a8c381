"""How commands are declared, the options that several of them share, and the experiment that these select."""

import argparse
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from nnlo_lib.core.errors import UserError

if TYPE_CHECKING:
    from nnlo_lib.config import Experiment

# Words of other tools for commands.
OTHER_COMMANDS = {
    "train": "run", "fit": "run", "resume": "run", "start": "run", "tune": "search", "optimize": "search", "sweep": "search",
    "validate": "check", "lint": "check", "dry-run": "plan", "test": "evaluate", "eval": "evaluate", "convert": "data",
    "dataset": "data", "summary": "model",
    "chaos": "python benchmarks/chaos.py",
}  # fmt: skip
FILES = {"bash": "_shtab_compgen_files", "zsh": "_files", "tcsh": "f"}  # shtab.FILE
LEVEL_NAMES = ("debug", "info", "warning", "error")


class Option(NamedTuple):
    """An option of a command."""

    name: str
    settings: dict[str, Any]
    is_form: bool


Command = Callable[[argparse.Namespace], int | None]
Declare = Callable[[Command], Command]
DECLARED: dict[Command, tuple[str, tuple[Option, ...], Sequence[str]]] = {}


class CommandParser(argparse.ArgumentParser):
    """Parser that suggests the nearest command, option or value, and prints an example after its options."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.formatter_class = argparse.RawDescriptionHelpFormatter

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse as argparse does, but report unknown options here, where the options of the command are known."""
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(
                f"unrecognized arguments: {' '.join(unknown)}{self._hint(unknown[0].partition('=')[0], {})}"
            )
        return found, unknown

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            other = OTHER_COMMANDS if isinstance(action, argparse._SubParsersAction) else {}
            choices = ", ".join(map(str, action.choices))
            raise argparse.ArgumentError(
                action,
                f"unknown: {value!r}{self._hint(str(value), other, action.choices)}; one of: {choices}",
            )

    def _hint(self, word: str, other: Mapping[str, str], known: Iterable[Any] = ()) -> str:
        """Return `; did you mean ...?` for the nearest of some names, or an empty string.

        Args:
            other: known names by words of other tools.
            known: names; none: the options of this parser.
        """
        import difflib  # only for an error

        names = {str(each): str(each) for each in known or self._option_string_actions} | dict(other)
        close = difflib.get_close_matches(word, names, n=1)
        return f"; did you mean '{names[close[0]]}'?" if close else ""


def option(name: str, text: str, is_form: bool = False, **settings: Any) -> Option:
    """Return an option and its help text, with the settings of argparse; of those with `is_form`, one may be given."""
    return Option(name, {"help": text, **settings}, is_form)


def command(example: str, *options: Option, steps: Sequence[str] = ()) -> Declare:
    """Declare the options of a function `run_<name>`, whose docstring is its help; `steps`: its own subcommands."""

    def declare(function: Command) -> Command:
        DECLARED[function] = example, options, steps
        return function

    return declare


def add_commands(parser: argparse.ArgumentParser, modules: Mapping[str, str]) -> None:
    """Add a subcommand for each name in `modules`, which maps it to its module in nnlo_lib.commands."""
    subcommands = parser.add_subparsers(metavar="COMMAND", required=True)
    for name, module in modules.items():
        # Every module is imported, also for `nnlo --help`: heavy packages are therefore imported in `run_<name>`.
        function = getattr(import_module(f"nnlo_lib.commands.{module}"), f"run_{name.replace('-', '_')}")
        (example, options, steps), summary = DECLARED[function], str(function.__doc__).partition("\n")[0]
        subcommand = subcommands.add_parser(
            name, help=f"{summary[0].lower()}{summary[1:-1]}", description=summary, epilog=example and f"example: {example}"
        )  # fmt: skip
        # A function has only the options, and argparse cannot express all of their valid combinations.
        subcommand.set_defaults(command=function, error=subcommand.error)
        form = (
            subcommand.add_mutually_exclusive_group() if any(each.is_form for each in options) else subcommand
        )
        for each in options:
            action = (form if each.is_form else subcommand).add_argument(each.name, **each.settings)
            if each.name == "file":
                action.complete = FILES  # type: ignore[attr-defined]  # read by shtab
        if steps:
            add_commands(subcommand, dict.fromkeys(steps, module))
        add_log_options(subcommand, is_shown=False)


def add_log_options(parser: argparse.ArgumentParser, is_shown: bool) -> None:
    """Add the level and the file of the log, which all commands accept before and after their name."""
    # Without a default, so that the parser of a subcommand does not overwrite what stands before its name.
    for name, text, values in (
        ("--log-level", "least level of the log messages, also of the ranks; default: info", LEVEL_NAMES),
        ("--log-file", "file to which the log messages, also of the ranks, are appended with time stamps", None),
    ):  # fmt: skip
        shown = text if is_shown else argparse.SUPPRESS
        parser.add_argument(name, choices=values, default=argparse.SUPPRESS, help=shown)


def _launcher(command: str) -> str:
    try:
        shlex.split(command)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{command}: {error}; close the quotation") from None
    return command


CHANGES = option(
    "--set", "set a key of the experiment file, such as train.epochs=5; may be repeated",
    action="append", default=[], metavar="KEY=VALUE", dest="changes",
)  # fmt: skip
OPTIONAL_FILE = option("file", "experiment file (YAML)", nargs="?")
EXPERIMENT = option("file", "experiment file (YAML)"), CHANGES
RUN = option("--run", "name of the run in `runs:`; default: all runs")
SEED = option("--seed", "random seed; default: the first of `seeds:`", type=int)
LAUNCHER = option(
    "--launcher", "command that starts N MPI ranks with -n N; default: %(default)s", type=_launcher, default="mpiexec"
)  # fmt: skip


def read_experiment(options: argparse.Namespace, first: bool = False) -> tuple["Experiment", list[str]]:
    """Return the experiment and the names of its selected runs.

    The selected run is `options.run`. Without it, all runs are selected, or only the first run if `first`.
    """
    from nnlo_lib.experiment.load import load_experiment

    return _selected(load_experiment(options.file, options.changes), options, first)


def read_checked_experiment(
    options: argparse.Namespace, first: bool = False
) -> tuple["Experiment", list[str]]:
    """Return the experiment and the names of its selected runs, after all checks that need no training."""
    from nnlo_lib.preflight.preflight import load_and_check

    return _selected(load_and_check(options.file, options.changes), options, first)


def _selected(
    experiment: "Experiment", options: argparse.Namespace, first: bool
) -> tuple["Experiment", list[str]]:
    from nnlo_lib.experiment.load import reject_ineffective_overrides

    names, wanted = list(experiment.variants), getattr(options, "run", None)
    if wanted and wanted not in names:
        raise UserError(f"--run: {options.file} has no run '{wanted}'; choose from {', '.join(names)}")
    names = [wanted] if wanted else names[: 1 if first else None]
    reject_ineffective_overrides(experiment, names, options.changes)
    return experiment, names


def chosen_seed(options: argparse.Namespace, experiment: "Experiment") -> int:
    """Return --seed, or the first seed of the experiment."""
    return experiment.seeds[0] if options.seed is None else int(options.seed)


def print_warnings(experiment: "Experiment") -> None:
    """Log a warning for valid settings that are probably a mistake."""
    from nnlo_lib.core.logging_setup import get_logger
    from nnlo_lib.search.space.validate import search_warnings

    for warning in search_warnings(experiment):
        get_logger(__name__).warning(warning)


def refuse_automatic_gpus_of_cluster(options: argparse.Namespace) -> None:
    """Raise UserError if jobs of the cluster in --profile would have `gpus_per_rank: auto`."""
    if options.profile:
        from nnlo_lib.experiment.load import refuse_automatic_gpus

        refuse_automatic_gpus(options.file, options.changes)


def print_lsf_requests(experiment: "Experiment") -> None:
    """Print what the jobs of an experiment ask of LSF."""
    from nnlo_lib.cluster.lsf_request import lsf_requests

    print("\n".join(["LSF is asked for:", *(f"  {line}" for line in lsf_requests(experiment))]))
