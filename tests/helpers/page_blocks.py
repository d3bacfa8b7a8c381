"""The code blocks of a page of the docs."""

import re
from dataclasses import dataclass
from pathlib import Path

BLOCK = re.compile(r'^```(\w+)(?: title="(.*?)")?\n(.*?)^```', re.S | re.M)


@dataclass(frozen=True)
class Block:
    """A fenced block; `title` is the name of the file that it is, or an empty string."""

    language: str
    title: str
    text: str


def blocks(page: Path) -> list[Block]:
    """Return the fenced blocks of a page in order."""
    return [Block(*found) for found in BLOCK.findall(page.read_text())]


def write_files(page: Path, folder: Path) -> None:
    """Write the titled blocks of a page as files."""
    for block in blocks(page):
        if block.title:
            (folder / block.title).write_text(block.text)
