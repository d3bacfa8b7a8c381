"""Syntax of a POSIX shell, as far as job scripts need it: commands, words, quotes, comments and redirections."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from nnlo_lib.core.errors import UserError

QUOTED = r"""'[^']*'|"(?:\\.|[^"\\])*"|\\."""
# Command substitutions up to three levels deep, with quotes inside.
_INNER = r"""(?:[^()'"]|'[^']*'|"[^"]*")"""
_LEVEL2 = rf"\((?:{_INNER}|\({_INNER}*\))*\)"
SUBSTITUTED = rf"\$\((?:{_INNER}|{_LEVEL2})*\)|`[^`]*`|\$\{{[^}}]*\}}"
PIECE = re.compile(
    rf"""(?P<comment>(?<![^\s;(])\#[^\n]*)
    |(?P<quoted>{QUOTED}|{SUBSTITUTED})
    |(?P<notation>(?<=\w),~?[<>],)                                # NNLO's metrics, such as val_loss,~<,4
    |(?P<redirect>(?:(?<!\S)\d+)?(?:>>|>&|<&|>\||<<<|<<-?|>|<)|&>>?)
    |(?P<separator>\n|&&|\|\||\|&?|;;?|&)
    |(?P<parenthesis>[()])
    |(?P<space>[ \t\r\v]+)
    |(?P<text>\w+|.)""",
    re.S | re.X,
)


@dataclass
class ShellCommand:
    """One command of a text, before its variables are expanded.

    Attributes:
        line: number of its first line, from 1.
        text: the command as it was written, with continued lines joined.
        separator: `|` if the output of the command before it is its input.
    """

    line: int
    text: str
    separator: str = "\n"


@dataclass
class ShellWords:
    """Words of one command, and the redirections between them.

    Attributes:
        words: words without quotes.
        redirections: operators with their files, such as `> log`.
        inputs: files from which the command reads, and marks of here-documents.
    """

    words: list[str] = field(default_factory=list)
    redirections: list[str] = field(default_factory=list)
    inputs: list[str] = field(default_factory=list)


def split_commands(text: str) -> list[ShellCommand]:
    """Split a text into commands, without comments."""
    # A vertical tab marks the end of a continued line, so that lines are still counted.
    text = re.sub(r"\\\r?\n", " \v", text) + "\n"
    commands, depth, current = [], 0, ShellCommand(0, "")
    for piece in PIECE.finditer(text):
        if piece["comment"] or (not current.text and _opens_group(piece)):
            continue
        if not depth and (piece["separator"] or piece[0] == ")"):
            if current.text.strip():
                commands.append(current)
            current = ShellCommand(0, "", piece["separator"] or "\n")
            continue
        depth += {"(": 1, ")": -1}.get(piece[0], 0)
        if current.text or not piece["space"]:
            current.line = current.line or 1 + len(re.findall("[\n\v]", text[: piece.start()]))
            current.text += piece[0].replace("\v", "")
    return commands


def _opens_group(piece: re.Match[str]) -> bool:
    """Return True for the parenthesis of a subshell, and for the space before a command."""
    return piece[0] == "(" or bool(piece["space"])


def shell_words(text: str) -> ShellWords:
    """Return the words of one command after the expansion of its variables.

    Raises UserError if a quote is not closed.
    """
    result, word, redirection = ShellWords(), None, ""
    for kind, piece in [*_pieces(text), ("space", " ")]:
        if kind in ("space", "redirect", "separator", "comment"):
            if word is not None:
                _add(result, word, redirection)
                word, redirection = None, ""
            redirection = piece if kind == "redirect" else redirection
        else:
            word = (word or "") + (_unquoted(piece) if kind == "quoted" else piece)
    return result


def _pieces(text: str) -> Iterator[tuple[str, str]]:
    for piece in PIECE.finditer(text):
        if piece[0] in ("'", '"'):
            raise UserError(
                f"cannot parse the command (No closing quotation): {text.splitlines()[0]}; check its quotes"
            )
        yield str(piece.lastgroup), piece[0]


def _add(result: ShellWords, word: str, redirection: str) -> None:
    if not redirection:
        result.words.append(word)
        return
    result.redirections.append(
        f"{redirection} {word}" if not redirection.endswith("&") else redirection + word
    )
    if redirection.startswith("<"):
        result.inputs.append(word)


def _unquoted(piece: str) -> str:
    if piece[0] == "'":
        return piece[1:-1]
    if piece[0] == '"':
        return re.sub(r'\\([\\"$`])', r"\1", piece[1:-1])
    return piece[1:] if piece[0] == "\\" else piece
