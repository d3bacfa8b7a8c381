"""Names of classes and categories: in one form of Unicode, and a question if they differ only by case, spaces or a final point."""

from collections.abc import Iterable
from itertools import groupby
from unicodedata import normalize


def composed(text: object) -> str:
    """Return a cell or a name as text in which a letter and its accent are one character (Unicode NFC), without spaces at its ends."""
    return normalize("NFC", str(text).strip())


def look_alike(name: str) -> str:
    """Return a form of a name that is equal for names that look alike."""
    return " ".join(normalize("NFKC", name).casefold().split()).rstrip(". ")


def question_of_similar(names: Iterable[str]) -> str:
    """Return a question about names that look alike; an empty string without any."""
    groups = [[*each] for _, each in groupby(sorted(names, key=look_alike), look_alike)]
    alike = [" and ".join(map(repr, each)) for each in groups if len(each) > 1]
    more = f" ({len(alike):,} such groups)" if len(alike) > 3 else ""
    return (
        f"{', '.join(alike[:3])}{more} differ only by case, spaces or a final point; if they are one, write it the same everywhere"
        if alike
        else ""
    )
