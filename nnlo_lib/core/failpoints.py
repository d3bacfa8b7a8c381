"""Named places at which a test or `nnlo chaos` makes this process fail; nothing happens where none is set."""

from collections.abc import Callable

_handlers: list[Callable[[str], None]] = []


def failpoint(name: str) -> None:
    """Tell whoever asked that this place is reached."""
    for tell in _handlers:
        tell(name)


def add_failpoint_handler(tell: Callable[[str], None]) -> None:
    """Call `tell` with the name of every place that is reached from now on."""
    _handlers.append(tell)


def failpoints_are_armed() -> bool:
    """Return whether reaching a failpoint has an effect."""
    return bool(_handlers)
