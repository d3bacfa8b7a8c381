"""Named places at which a test or `nnlo chaos` makes this process fail; nothing happens where none is set."""

from collections.abc import Callable

_reached: list[Callable[[str], None]] = []


def failpoint(name: str) -> None:
    """Tell whoever asked that this place is reached."""
    for tell in _reached:
        tell(name)


def on_reach(tell: Callable[[str], None]) -> None:
    """Call `tell` with the name of every place that is reached from now on."""
    _reached.append(tell)
