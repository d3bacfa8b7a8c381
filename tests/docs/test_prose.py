"""The documents have no walls of text: their sentences and paragraphs are short."""

import re
from collections.abc import Iterator

from helpers.document_blocks import PAGES, REPOSITORY

SENTENCE_WORDS = 35
PARAGRAPH_WORDS = 90
NO_PROSE = re.compile(r"\s*(?:$|\||#|<)")  # empty lines, tables, headings and comments
LIST_ITEM = re.compile(r"^\s*(?:[*-]|\d+\.) ")
# A lower-case letter after a point belongs to an abbreviation. A colon does not end a sentence.
SENTENCE_END = re.compile(r"(?<=[.!?])(?<!\bal\.)[\"')*_]*\s+(?![a-z])")


def paragraphs(text: str) -> Iterator[tuple[int, str]]:
    """Yield line number and text of each paragraph and list item; `code` and the target of a link are one word."""
    found: list[tuple[int, list[str]]] = []
    is_code = is_open = False
    for number, line in enumerate(text.splitlines(), 1):
        is_fence = line.lstrip().startswith("```")
        is_code ^= is_fence
        if is_fence or is_code or NO_PROSE.match(line):
            is_open = False
        elif is_open and not LIST_ITEM.match(line):
            found[-1][1].append(line)
        else:
            found.append((number, [LIST_ITEM.sub("", line, count=1)]))
            is_open = True
    for number, lines in found:
        linked = re.sub(r"`[^`]*`", "CODE", " ".join(lines))
        yield number, re.sub(r"\]\([^)]*\)", "]", linked)


def too_long(text: str) -> list[str]:
    """Return line, words and beginning of each sentence and paragraph that is too long."""
    found = []
    for number, paragraph in paragraphs(text):
        pieces = [("paragraph", paragraph, PARAGRAPH_WORDS)]
        pieces += [("sentence", sentence, SENTENCE_WORDS) for sentence in SENTENCE_END.split(paragraph)]
        for kind, piece, most in pieces:
            words = piece.split()
            if len(words) > most:
                found.append(f"{number}: {kind} of {len(words)} words: {' '.join(words[:6])} ...")
    return found


def test_no_walls_of_text():
    found = [
        f"{page.relative_to(REPOSITORY)}:{each}" for page in PAGES for each in too_long(page.read_text())
    ]
    assert found == []


def test_walls_are_found():
    wall = "word " * (PARAGRAPH_WORDS + 1)
    assert [each[:2] for each in too_long(f"a\n\n* {wall}\n* b")] == ["3:", "3:"]
    assert too_long(f"# {wall}\n\n| {wall} |\n\n```\n{wall}\n```\n") == []
    most = f"A {'word ' * 16}[a link](of.md#many): `code of words`, et al. 2020,\ni.e. {'word ' * 10}end."
    assert too_long(f"{most} {most}\n* {most}\n  {most}\n") == []
    longer = most.replace(" end.", " an end.")
    assert too_long(longer) == ["1: sentence of 36 words: A word word word word word ..."]
