"""A page and the raw files that it is made of; the figures of the page as parameters of a test."""

import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Generic, TypeVar

from helpers.recomputation.audit import Audit, without_exempt
from helpers.recomputation.element import Element, parse, shown_texts

Raw = TypeVar("Raw")
Figures = dict[str, Callable[[Audit, Raw], None]]
CHANGED = {"", "title", "cx", "cy"}  # texts, tooltips and places of marks


@dataclass(frozen=True)
class AuditedPage(Generic[Raw]):
    """A page and the raw files that it is made of."""

    html: str
    raw: Raw
    figures: Figures[Raw]

    @cached_property
    def root(self) -> Element:
        return parse(self.html)

    def differences(self, figure: str) -> list[str]:
        """Recompute one figure; return the differences from the page."""
        audit = Audit(self.root)
        self.figures[figure](audit, self.raw)
        return audit.differences

    def unnoticed(self, count: int, seed: int) -> list[str]:
        """Change a digit in each of `count` randomly chosen texts; return the changes that no recomputation notices."""
        source, known = random.Random(seed), self._all_differences()
        texts = [
            text
            for text in shown_texts(self.root)
            if text.name in CHANGED and re.search(r"\d", without_exempt(text.value))
        ]
        missed = []
        for text in source.sample(texts, count):
            before = text.value
            text.value = _changed(before, source)
            missed += (
                [f"{text.owner!r}: {before[:80]!r} -> {text.value[:80]!r}"]
                if self._all_differences() == known
                else []
            )
            text.value = before
        return missed

    def _all_differences(self) -> list[str]:
        audit = Audit(self.root)
        for name, check in self.figures.items():
            try:
                check(audit, self.raw)
            except (
                ArithmeticError,
                AssertionError,
                AttributeError,
                LookupError,
                StopIteration,
                TypeError,
                ValueError,
            ) as error:
                audit.differ(self.root, f"{name} cannot be read: {error!r}")
        return audit.differences

    def unexplained(self) -> list[str]:
        """Recompute all figures; return the texts with figures that no recomputation has explained."""
        audit = Audit(parse(self.html))
        for check in self.figures.values():
            check(audit, self.raw)
        return audit.unexplained()


def _changed(text: str, source: random.Random) -> str:
    """Return a text with another first digit of one of its numbers, apart from numbers that are no figures."""
    places = [each.start() for each in re.finditer(r"(?<!\d)(?<!\d[.,])\d", without_exempt(text))]
    place = source.choice(places)
    return text[:place] + str((int(text[place]) + source.randint(1, 9)) % 10) + text[place + 1 :]
