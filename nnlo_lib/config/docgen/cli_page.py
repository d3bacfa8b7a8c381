"""The page of the command line: an introduction written by hand, and a section for each sub-command."""

import argparse
from collections.abc import Iterator

from nnlo_lib.config.docgen.reference_page import MARKER

CLI_MARKER = MARKER.replace("nnlo_lib/config/", "nnlo_lib/commands/")


def cli_page(current: str, parser: argparse.ArgumentParser) -> str:
    """Return the page: the introduction of the current one, and the sub-commands of `parser`."""
    introduction = current.partition(CLI_MARKER)[0]
    return "\n".join([introduction + CLI_MARKER, *_sections(parser, 2)])


def _sections(parser: argparse.ArgumentParser, level: int) -> Iterator[str]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            summaries = {choice.dest: choice.help or "" for choice in action._choices_actions}
            for name, command in action.choices.items():
                yield from _section(f"{'#' * level} `{command.prog}`", summaries[name], command)
                yield from _sections(command, level + 1)


def _section(heading: str, summary: str, parser: argparse.ArgumentParser) -> Iterator[str]:
    # --log-level and --log-file, which all commands have, are in the hand-written introduction.
    shown = [
        action
        for action in parser._actions
        if not isinstance(action, argparse._HelpAction) and action.help != argparse.SUPPRESS
    ]
    usage = " ".join([parser.prog, *map(_usage, shown)])
    yield f"{heading}\n\n{summary[:1].upper()}{summary[1:]}.\n\n```text\n{usage}\n```\n"
    rows = [action for action in shown if not isinstance(action, argparse._SubParsersAction)]
    if rows:
        yield "| argument | default | meaning |\n| --- | --- | --- |"
        yield from map(_row, rows)
        yield ""


def _usage(action: argparse.Action) -> str:
    if isinstance(action, argparse._SubParsersAction):
        return "COMMAND ..."
    text = _signature(action)
    return text if action.required else f"[{text}]"


def _signature(action: argparse.Action) -> str:
    """Return an argument as it is typed: `FILE`, `--seed SEED`, `--replay`, `--executor local|mpi`."""
    name = action.metavar or (action.dest.upper() if action.option_strings else action.dest)
    value = "|".join(map(str, action.choices)) if action.choices else str(name)
    value = f"{value} ..." if action.nargs in ("+", "*", argparse.REMAINDER) else value
    if not action.option_strings:
        return value
    return action.option_strings[-1] if action.nargs == 0 else f"{action.option_strings[-1]} {value}"


def _row(action: argparse.Action) -> str:
    """Return an argument's row of the table."""
    meaning = ((action.help or "") % {"default": action.default}).replace("|", "\\|")
    has_default = action.option_strings and action.nargs != 0 and action.default not in (None, [])
    default = f"`{action.default}`" if has_default else "required" if action.required else ""
    name = _signature(action).replace("|", "\\|")
    return f"| `{name}` | {default} | {meaning} |"
