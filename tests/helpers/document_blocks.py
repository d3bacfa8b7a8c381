"""The fenced code blocks of the documentation, with the marks that exclude blocks from checks.

A block with title="NAME" in its info string is the file NAME in the working folder of its page's commands.
The comment <!-- not checked: REASON --> or <!-- not run: REASON --> on the line above a block excludes it.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
PAGES = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").rglob("*.md"))]
EXTENSION_PAGES = REPOSITORY / "docs/develop/extend"
FENCE = re.compile(r"^```(?P<language>\w+)?(?P<info>[^\n]*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
REASON = re.compile(r"<!-- not (?:checked|run): \S[^\n]* -->\n$")
SHELL = {"sh", "bash", "console"}
STORE_KEY = re.compile(r"(hdf5|npz)-[0-9a-f]{12}")
NUMBER = re.compile(r"[-+]?\d[\d.,e+:/x]*")


@dataclass(frozen=True)
class Block:
    """A fenced block of a page; `start` and `end` are the offsets of its text in the page, in characters."""

    page: Path
    line: int
    language: str
    title: str
    text: str
    is_excluded: bool
    start: int
    end: int

    def __str__(self) -> str:
        return f"{self.page.relative_to(REPOSITORY)}:{self.line}"

    @property
    def commands(self) -> list[str]:
        """The commands of a shell block; in a console block, the lines after `$ ` with their continuation lines."""
        if self.language != "console":
            return [self.text]
        return re.findall(r"^\$ (.*(?:\\\n.*)*)$", self.text, re.MULTILINE)


def blocks(page: Path) -> Iterator[Block]:
    """Yield the blocks of a page that have a language, in order."""
    text = page.read_text()
    for found in FENCE.finditer(text):
        if found["language"]:
            title = re.search(r'title="([^"]+)"', found["info"])
            before = text[: found.start()]
            yield Block(
                page, before.count("\n") + 1, found["language"], title[1] if title else "", found["text"],
                bool(REASON.search(before)), found.start("text"), found.end("text"),
            )  # fmt: skip


def write_files(page: Path, folder: Path) -> None:
    """Write the titled blocks of a page as files into a folder."""
    for block in blocks(page):
        if block.title:
            (folder / block.title).write_text(block.text)


def shape(output: str) -> list[str]:
    """Return the nonempty lines of an output with numbers and keys of stores replaced by 0, and spaces collapsed."""
    plain = STORE_KEY.sub(r"\1-0", output)
    lines = (re.sub(r"\s+", " ", NUMBER.sub("0", line)).strip() for line in plain.splitlines())
    return [line for line in lines if line]


def matches(shown: str, output: str) -> bool:
    """Return True if the shown output has the shape of the real output; a line `...` matches any number of lines."""
    pattern = "".join(r"(?:.*\n)*" if line == "..." else f"{re.escape(line)}\n" for line in shape(shown))
    return re.fullmatch(pattern, "".join(f"{line}\n" for line in shape(output))) is not None
