"""Comparison of a page with recomputed values: differences, and characters that nothing has explained."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

from helpers.recomputation.element import Element, Text, shown_texts
from helpers.recomputation.quantity import QUANTITY, SPREAD, Spread, agrees

Value = "float | int | None | str | Spread"
MARKER = "{}"
# Texts with digits that are no figures of the experiment, with the reason.
EXEMPT = {
    r"^M1,5H21$": "the sample of a line in a legend",
    r"from 0 \(no reduction\) to 1 \(consensus after one round\)": "the definition of the spectral gap",
    r"\(Friedman 2001\)": "literature",
}


@dataclass
class Audit:
    """A page that is compared with recomputed values."""

    page: Element
    differences: list[str] = field(default_factory=list)

    def differ(self, where: Element, what: str) -> None:
        self.differences.append(f"{where!r}: {what}")

    def require(self, condition: bool, where: Element, what: str) -> None:
        if not condition:
            self.differ(where, what)

    def same(self, element: Element, template: str, *values: Any) -> None:
        """Compare the whole text of an element with a template, whose `{}` are the values."""
        self._match(element, list(element.texts()), template, values, re.Pattern.fullmatch)

    def own(self, element: Element, template: str, *values: Any) -> None:
        """Compare the text of an element, without the elements in it, with a template."""
        texts = [each for each in element.children if isinstance(each, Text)]
        self._match(element, texts, template, values, re.Pattern.fullmatch)

    def says(self, element: Element, template: str, *values: Any) -> None:
        """Compare a part of the text of an element with a template, whose `{}` are the values."""
        self._match(element, list(element.texts()), template, values, re.Pattern.search)

    def attribute(self, element: Element, name: str, template: str, *values: Any) -> None:
        """Compare an attribute with a template, whose `{}` are the values."""
        if name not in element.attributes:
            return self.differ(element, f"no attribute {name}")
        return self._match(element, [element.attributes[name]], template, values, re.Pattern.fullmatch)

    def place(self, element: Element, name: str, expected: float, tolerance: float = 0.06) -> None:
        """Compare an attribute, a position in drawing units, with the expected position."""
        text = element.attributes[name]
        text.explain()
        if abs(float(text.value) - expected) > tolerance:
            self.differ(element, f"{name} is {text.value}, recomputed {expected:.2f}")

    def percentage(self, element: Element, name: str, expected: float, tolerance: float = 0.00051) -> None:
        """Compare a length in the style of an element (`name:12.3%`) with the expected fraction."""
        text = element.attributes["style"]
        found = re.search(rf"(?:^|;){name}:([\d.e-]+)%", text.value)
        if not found:
            return self.differ(element, f"no {name} in {text.value}")
        text.explain(*found.span())
        shown = float(found[1])
        if abs(shown - 100 * expected) > tolerance:
            self.differ(element, f"{name} is {shown} %, recomputed {100 * expected:.4f} %")
        return None

    def unexplained(self) -> list[str]:
        """Return the texts with digits that no comparison has explained."""
        rest = [(text, without_exempt(text.unexplained)) for text in shown_texts(self.page)]
        return [
            f"{text.owner!r} {text.name}: {' '.join(left.split())[:200]}"
            for text, left in rest
            if re.search(r"\d", left)
        ]

    def _match(
        self,
        element: Element,
        texts: Sequence[Text],
        template: str,
        values: Sequence[Any],
        method: "Callable[[re.Pattern[str], str], re.Match[str] | None]",
    ) -> None:
        joined = "".join(text.value for text in texts)
        found = method(_pattern(template, values), joined)
        if not found:
            wanted = template.replace(MARKER, "%s") % values if values else template
            return self.differ(element, f"{' '.join(joined.split())[:300]!r} does not match {wanted!r}")
        _explain(texts, *found.span())
        for displayed, value in zip(
            found.groups(), [each for each in values if not isinstance(each, str)], strict=True
        ):
            if not agrees(displayed, value):
                self.differ(element, f"{displayed!r} is displayed, recomputed {value} ({template})")
        return None


def _pattern(template: str, values: Sequence[Any]) -> "re.Pattern[str]":
    parts = template.split(MARKER)
    assert len(parts) == len(values) + 1, template
    pattern = _literal(parts[0])
    for value, part in zip(values, parts[1:], strict=True):
        pattern += (
            _literal(value)
            if isinstance(value, str)
            else f"({SPREAD if isinstance(value, Spread) else QUANTITY})\\s*"
        )
        pattern += _literal(part)
    return re.compile(rf"\s*{pattern}\s*")


def _literal(text: str) -> str:
    words = [re.escape(word) for word in re.split(r"\s+", text)]
    return r"\s+".join(words)


def without_exempt(text: str) -> str:
    """Return a text with blanks in place of the digits that are no figures."""
    for pattern in EXEMPT:
        text = re.sub(pattern, lambda found: " " * len(found[0]), text)
    return text


def _explain(texts: Sequence[Text], start: int, end: int) -> None:
    ends = list(accumulate(len(text.value) for text in texts))
    for text, stop in zip(texts, ends, strict=True):
        first = stop - len(text.value)
        low, high = max(start, first) - first, min(end, stop) - first
        if low < high:
            text.explain(low, high)
