"""Named points in the code at which tests and benchmarks/chaos.py inject faults; they do nothing without a handler."""

from collections.abc import Callable

FAILPOINT_VARIABLE = (
    "NNLO_FAILPOINTS"  # `path.py:function`, which each rank calls with its number and its folder of state
)

_handlers: list[Callable[[str], None]] = []


def failpoint(name: str) -> None:
    """Call all handlers with the name of the failpoint that is reached."""
    for handler in _handlers:
        handler(name)


def add_failpoint_handler(handler: Callable[[str], None]) -> None:
    """Call `handler` with the name of every failpoint that is reached from now on."""
    _handlers.append(handler)


def failpoints_are_armed() -> bool:
    """Return True if a handler is registered."""
    return bool(_handlers)
