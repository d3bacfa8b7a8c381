"""Named places at which a test or `nnlo chaos` makes this process fail; without a handler they do nothing."""

from collections.abc import Callable

_handlers: list[Callable[[str], None]] = []


def failpoint(name: str) -> None:
    """Call all handlers with the name of the failpoint that is reached."""
    for tell in _handlers:
        tell(name)


def add_failpoint_handler(tell: Callable[[str], None]) -> None:
    """Call `tell` with the name of every failpoint that is reached from now on."""
    _handlers.append(tell)


def failpoints_are_armed() -> bool:
    """Return True if a handler is registered."""
    return bool(_handlers)
