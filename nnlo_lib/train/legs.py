"""The legs of a training: which nnlo did it on how many ranks, from which step on."""

from typing import TypedDict


class Leg(TypedDict):
    """step: done before it; code: the nnlo that did it."""

    step: int
    ranks: int
    code: str


def joined(legs: list[Leg], leg: Leg) -> list[Leg]:
    """Add a leg, unless it goes on like the last one."""
    goes_on = bool(legs) and legs[-1] | {"step": leg["step"]} == leg
    return legs if goes_on else [*legs, leg]
