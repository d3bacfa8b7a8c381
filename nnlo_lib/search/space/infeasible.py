"""Points of a space that give no valid run, each reduced to the keys that conflict."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from nnlo_lib.config.space import DimensionConfig
from nnlo_lib.search.study.trial import SearchPoint

Key = tuple[str, ...]
Mistake = tuple[Key, str]


@dataclass(frozen=True)
class InfeasiblePoints:
    """Finds the points that give no valid run and reports the conflicting keys.

    Attributes:
        space: dimension of each searched key.
        refusals: returns the mistakes of the base run with the values of a point.
    """

    space: Mapping[str, DimensionConfig]
    refusals: Callable[[SearchPoint], list[Mistake]]

    def find_mistakes(self, points: Iterable[SearchPoint]) -> Iterator[Mistake]:
        """Yield one mistake for each key that causes a point to be refused."""
        mistakes: dict[Key, str] = {}
        for point in points:
            if found := self.refusals(point):
                at, what = found[0]
                mistakes.setdefault(*self._described(self._reduced(point, what), ".".join(at), what))
        yield from mistakes.items()

    def _reduced(self, point: SearchPoint, what: str) -> SearchPoint:
        """Return the refused point without the keys that do not contribute to the mistake."""
        for key in list(point):
            rest = {other: value for other, value in point.items() if other != key}
            # A key on which others depend stays: their conditions would refer to nothing.
            needed = any(key in self.space[other].when for other in rest)
            if not needed and what in (sentence for _, sentence in self.refusals(rest)):
                point = rest
        return point

    def _described(self, point: SearchPoint, blamed: str, what: str) -> Mistake:
        """Return the place of a mistake and a message that names the conflicting keys.

        Args:
            point: the refused point, reduced to the keys that contribute to the mistake.
            blamed: key that the refusal names; the place is its searched key, or the last key of the point.
            what: message of the refusal.
        """
        key = next((key for key in reversed(point) if blamed.startswith(key)), ["", *point][-1])
        place = ("search", "space", key) if key else ("search",)
        others = {other: value for other, value in point.items() if other != key}
        if names := self._names_with_key(key, point, what):
            return place, f"{what}; add the condition `when: {{{_name_key(key)}: [{', '.join(names)}]}}`"
        value = f"{point[key]!r}: " if point else ""
        if not others:
            return place, f"{value}{what}"
        together = " and ".join(f"{other} = {value}" for other, value in others.items())
        return place, f"{value}with {together}: {what}; remove one of these values, or add a `when` condition"

    def _names_with_key(self, key: str, point: SearchPoint, what: str) -> list[str]:
        """Return the searched names of the enclosing section that have a key; empty for other mistakes.

        Args:
            key: searched key, such as `train.optimizer.momentum`.
            point: the refused point.
            what: message of the refusal.
        """
        name = _name_key(key)
        if not what.startswith("unknown key") or name not in self.space:
            return []
        names = self.space[name].choice or ()
        return [
            str(value)
            for value in names
            if "unknown " not in str(self.refusals({name: value, key: point[key]}))
        ]


def _name_key(key: str) -> str:
    return f"{key.rpartition('.')[0]}.name"
