"""Syntax of a POSIX shell, as far as job scripts need it: commands, words, quotes, comments, redirections, variables."""

import ast
import re
import shlex
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
# A here-document, with the line of its command, up to the line of its mark.
HERE_DOCUMENT = re.compile(
    r"""^(?P<command>[^\n#]*(?<!<)<<-?[ \t]*(?P<quote>['"]?)(?P<mark>[A-Za-z_]\w*)(?P=quote)[^\n]*\n)(?P<body>.*?)^\t*(?P=mark)\s*?$""",
    re.M | re.S,
)
# A body with commands: the input of a shell or of a submitted job, or a script that begins with its shell.
SCRIPT_INPUT = re.compile(r"(?<!\S)(?:\S*/)?(?:sbatch|bsub|salloc|bash|sh|zsh|ksh)(?=\s)")
SCRIPT_START = re.compile(r"\s*#!.*sh\b|\s*#(?:SBATCH|BSUB)\b")
BROKEN_CONTINUATION = re.compile(r"^[^#\n]*[^#\s][^#\n]*\\[ \t]+(?:#[^\n]*)?\r?$", re.M)
ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(\+?)=(.*)", re.S)
ARRAY = re.compile(r"\s*\((.*)\)\s*", re.S)
NAME = r"[A-Za-z_]\w*|[0-9@*\#?]"
REFERENCE = rf"""\$\(\((?P<sum>[^'"]*?)\)\)
    |\$\{{(?P<array>[A-Za-z_]\w*)\[(?P<index>[@*]|\d+)\]\}}
    |\$\{{(?P<guarded>{NAME}):?-(?P<default>[^}}]*)\}}
    |\$\{{(?P<braced>{NAME})\}}
    |\$(?P<plain>{NAME})"""
INSIDE_QUOTES = re.compile(REFERENCE, re.X)
ANYWHERE = re.compile(
    rf"""(?P<literal>'[^']*'|\\.)|"\$\{{(?P<all>[A-Za-z_]\w*)\[@\]\}}"|(?P<quoted>"(?:\\.|[^"\\])*")|{REFERENCE}""",
    re.X,
)
SUBSTITUTION = re.compile(r"\$\((?!\()|`")
SUM = re.compile(r"[\d\s+*/()-]{1,60}")


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
    """Split a text into commands, without comments and here-documents that are data.

    Raises UserError if spaces or a comment follow the backslash at the end of a line.
    """
    text = HERE_DOCUMENT.sub(_without_data, text)
    if broken := BROKEN_CONTINUATION.search(text):
        raise UserError(
            f"line {1 + text.count(chr(10), 0, broken.start())}: spaces follow the backslash, so that the shell ends the command "
            "there; remove what follows the backslash"
        )
    # A vertical tab marks the end of a continued line, so that lines are still counted.
    text = re.sub(r"\\\r?\n", " \v", text) + "\n"
    commands, depth, current = [], 0, ShellCommand(0, "")
    for piece in PIECE.finditer(text):
        # The parenthesis of a subshell, or the space before a command.
        if piece["comment"] or (not current.text and (piece[0] == "(" or piece["space"])):
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


def _without_data(document: re.Match[str]) -> str:
    """Return a here-document, with empty lines in place of a body that no shell runs."""
    if SCRIPT_INPUT.search(document["command"]) or SCRIPT_START.match(document["body"]):
        return document[0]
    return document["command"] + "\n" * document["body"].count("\n")


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


@dataclass
class ShellVariables:
    """Values of the variables that a text has set so far.

    Attributes:
        values: words of each variable; a variable that is no array has one.
        exported: names that the started commands inherit.
        unset: references in the last expanded text to variables that the text does not set.
    """

    values: dict[str, list[str]] = field(default_factory=dict)
    exported: set[str] = field(default_factory=set)
    unset: list[str] = field(default_factory=list)

    @property
    def environment(self) -> dict[str, str]:
        """Exported variables."""
        return {name: " ".join(self.values[name]) for name in sorted(self.exported) if name in self.values}

    def assign(self, text: str) -> bool:
        """Assign `NAME=value` or `NAME=(words)`; return False if the text is not only an assignment."""
        found = ASSIGNMENT.fullmatch(text.strip())
        array = ARRAY.fullmatch(found[3]) if found else None
        if not found or (not array and len(shell_words(text).words) > 1):  # `NAME=value command`
            return False
        name, plus, value = found.groups()
        if SUBSTITUTION.search(re.sub(r"'[^']*'", "", value)):  # the output of a command is unknown
            self.values.pop(name, None)
            return True
        if array:
            words = shell_words(self.expanded(array[1].replace("\n", " "))).words
        else:
            words = [" ".join(shell_words(self.expanded(value)).words)]
        old = self.values.get(name, []) if plus else []
        self.values[name] = [*old, *words] if array else ["".join([*old, *words])]
        return True

    def expanded(self, text: str) -> str:
        """Return the text with the values of its variables; unknown references are kept and recorded."""
        self.unset = []
        return ANYWHERE.sub(self._value, text)

    def _value(self, found: re.Match[str]) -> str:
        if found["literal"] is not None:
            return found[0]
        if found["all"] and found["all"] in self.values:
            return shlex.join(self.values[found["all"]])
        if found["quoted"] is not None:
            return INSIDE_QUOTES.sub(lambda inner: re.sub(r'(["\\])', r"\\\1", self._text(inner)), found[0])
        text = self._text(found)
        # An unknown sum such as $((NODES * 4)) is one word.
        return " ".join(map(shlex.quote, [text] if "$((" in text else text.split()))

    def _text(self, found: re.Match[str]) -> str:
        """Return the value of one reference, or the reference itself if its variable is not set."""
        value = self._looked_up(found) if found["sum"] is None else self._computed(found["sum"])
        if value is None:
            self.unset.append(found[0])
        return found[0] if value is None else value

    def _looked_up(self, found: re.Match[str]) -> str | None:
        words = self.values.get(found["array"] or found["guarded"] or found["braced"] or found["plain"])
        if words is None:
            default: str | None = found["default"]
            return default and re.sub(r"""^(['"])(.*)\1$""", r"\2", default)  # ${ARGS:-""} is empty
        if found["index"] and found["index"].isdigit():
            return words[int(found["index"])] if int(found["index"]) < len(words) else ""
        return " ".join(words if found["index"] else words[:1])

    def _computed(self, text: str) -> str | None:
        """Return the value of an integer expression such as NODES * 4, or None if it is not a sum of products."""
        text = re.sub(
            r"\$?\{?([A-Za-z_]\w*)\}?", lambda name: " ".join(self.values.get(name[1], [name[1]])), text
        )
        if not SUM.fullmatch(text) or "**" in text:
            return None
        try:
            return str(_integer(ast.parse(text.strip(), mode="eval").body))
        except (SyntaxError, ValueError, ArithmeticError):
            return None


def _integer(node: ast.expr) -> int:
    match node:
        case ast.Constant(value=int(value)):
            return value
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _integer(left) + _integer(right)
        case ast.BinOp(left=left, op=ast.Sub(), right=right):
            return _integer(left) - _integer(right)
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            return _integer(left) * _integer(right)
        case ast.BinOp(left=left, op=ast.Div(), right=right):
            return _integer(left) // _integer(right)
    raise ValueError("not a sum of products of integers")
