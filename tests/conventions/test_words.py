"""Check docstrings, comments, messages and pages for banned words and British spelling.

The style guide is docs/develop/style.md.
"""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from helpers.source_tree import PACKAGE, REPOSITORY

FOLDERS = ("nnlo_lib", "scripts", "benchmarks", "workflow", "tests")
SOURCES = sorted(
    path for folder in FOLDERS for path in (REPOSITORY / folder).rglob("*.py") if path != Path(__file__)
)
STYLE_GUIDE = REPOSITORY / "docs/develop/style.md"  # quotes what it forbids
PAGES = sorted({*REPOSITORY.glob("*.md"), *(REPOSITORY / "docs").rglob("*.md")} - {STYLE_GUIDE})
TEMPLATES = sorted(PACKAGE.rglob("*.html"))

# Processes do not talk, and each sentence names its subject.
BANNED = re.compile(
    r"\b(told|wish|wishes|hear|hears|heard|nobody|somebody|whoever|whomsoever|lest|mend|mended|bury|buries|confess"
    r"|takes? leave|goes on|go on|going on|went on|without a word|in vain|no hope|comes? up|came up|for want of|afresh|anew)\b",
    re.IGNORECASE,
)
BRITISH = re.compile(
    r"\b(\w*colou?r(?<!color)(?:s|ed|ing|less)?|\w*(?:behaviour|neighbour|honour|favour|labour)\w*|(?:re|un|non)?centred?\b|centres|metres?|catalogue[sd]?"
    r"|\w*(?:normalis|initialis|optimis(?!m|tic)|organis|recognis|serialis|synchronis|parallelis(?!m)|minimis|maximis|utilis|standardis|generalis|summaris|randomis|quantis|regularis|vectoris|analys(?=ed|es|ing))\w*"
    r"|\w*(?:labell|modell|cancell(?!ation)|travell|signall|channell)(?:ed|ing)|grey\w*|licence|whilst|amongst|towards|learnt|spelt|defence|artefact\w*)\b",
    re.IGNORECASE,
)
# Names in files of version 0.1, in other programs and in the experiment file, which keep their spelling.
FOREIGN = re.compile(
    r"utilisation|consensus_error_normalised|`?colour`?|\bgrey\b|CANCELLED|was_cancelled|neighbour\.|centred\.ledger|licence"
)
DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def _docstring_nodes(module: ast.Module) -> dict[int, str]:
    """Return the docstrings of a module, by line number."""
    found = {}
    for node in ast.walk(module):
        if isinstance(node, DOCUMENTED) and (text := ast.get_docstring(node)):
            found[node.body[0].lineno] = text
    return found


@cache
def _prose(path: Path) -> tuple[tuple[int, str], ...]:
    """Return docstrings, comments and, except in tests, strings of three or more words, with their lines."""
    source = path.read_text()
    texts = list(_docstring_nodes(ast.parse(source)).items())
    # Strings of tests are outputs to compare with, also those of other programs.
    texts += [
        (node.lineno, node.value)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value.split()) > 2
        if not path.is_relative_to(REPOSITORY / "tests")
    ]
    texts += [
        (token.start[0], token.string)
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT
    ]
    return tuple(texts)


def _page_prose(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines of a page outside of code blocks, with their numbers."""
    inside = False
    for number, line in enumerate(path.read_text().splitlines(), 1):
        inside ^= line.lstrip().startswith("```")
        if not inside:
            yield number, line


def _found(pattern: re.Pattern[str], path: Path) -> list[str]:
    texts = _prose(path) if path.suffix == ".py" else _page_prose(path)
    return [
        f"{path.relative_to(REPOSITORY)}:{line}: {match[0]}"
        for line, text in texts
        for match in pattern.finditer(FOREIGN.sub("", text))
    ]


@pytest.mark.parametrize("pattern", [BANNED, BRITISH], ids=["banned words", "British spelling"])
def test_words(pattern):
    paths = [*SOURCES, *PAGES, *TEMPLATES]
    assert len(paths) > 500
    assert [line for path in paths for line in _found(pattern, path)] == []
