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
DURATION = re.compile(r"\b0 (?:ms|min|h)\b")
# The table of a comparison, the sentences below it, which depend on the numbers, and the path of the page.
COMPARISON = re.compile(r"^(run .*restarts\n(?:\S+  .* \d+\n)+)((?:.*\n)*?)(results/\S+\n)", re.MULTILINE)


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
    """Return the nonempty lines of an output with numbers, units of time and keys of stores replaced, and spaces collapsed.

    The star of a value that is better than all others is left out, because it depends on the numbers.
    """
    plain = DURATION.sub("0 s", NUMBER.sub("0", STORE_KEY.sub(r"\1-0", output))).replace(" *", "")
    lines = (re.sub(r"\s+", " ", line).strip() for line in plain.splitlines())
    return [line for line in lines if line]


def matches(shown: str, output: str) -> bool:
    """Return True if the shown output has the shape of the real output; a line `...` matches any number of lines."""
    return _places(shown, output) is not None


def renewed(shown: str, output: str) -> str:
    """Return the real output, shortened by `...` where the shown output is; the whole of it if their shapes differ."""
    if (places := _places(shown, output)) is None:
        return output
    real = output.splitlines(keepends=True)
    filled = [number for number, line in enumerate(real) if line.strip()]
    text, last = "", None
    for place in places:
        here = None if place is None else filled[place]
        # Empty lines are shown between lines that follow each other.
        text += "...\n" if here is None else "".join(real[here if last is None else last + 1 : here + 1])
        last = here
    said = COMPARISON.search(shown)
    if not said or said[2] == "...\n":
        return text
    return COMPARISON.sub(rf"\1{COMPARISON.search(output)[2]}\3", text)


def _places(shown: str, output: str) -> list[int | None] | None:
    """Return the number of each shown line among the output's, None for `...`; or None if the shapes differ."""
    expected = shape(COMPARISON.sub(r"\1...\n\3", shown))
    pattern = "".join(r"(?:.*\n)*" if line == "..." else f"({re.escape(line)}\n)" for line in expected)
    text = "".join(f"{line}\n" for line in shape(output))
    if (found := re.fullmatch(pattern, text)) is None:
        return None
    numbers = (text.count("\n", 0, begin) for begin, _ in found.regs[1:])
    return [None if line == "..." else next(numbers) for line in expected]
