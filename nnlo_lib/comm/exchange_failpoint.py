"""Failpoints around the calls of a transport, at which tests and `nnlo chaos` make a rank fail."""

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from nnlo_lib.comm.communicator import Request
from nnlo_lib.core.failpoints import failpoint, failpoints_are_armed

P = ParamSpec("P")
T = TypeVar("T")
WAIT_FAILPOINT = "exchange.wait"


def exchange_failpoint(call: Callable[P, T]) -> Callable[P, T]:
    """Decorate a method with the failpoint `exchange.<name of the method>`, before and after the call.

    The `wait` of a returned Request passes WAIT_FAILPOINT in the same way. If no failpoint is armed, the
    cost is one test.
    """
    place = f"exchange.{call.__name__}"

    @wraps(call)
    def passed(*args: P.args, **kwargs: P.kwargs) -> T:
        if not failpoints_are_armed():
            return call(*args, **kwargs)
        failpoint(place)
        result = call(*args, **kwargs)
        failpoint(place)
        if isinstance(result, Request):
            result.wait = _waiting(result.wait)
        return result

    return passed


def _waiting(wait: Callable[[], None]) -> Callable[[], None]:
    def passed() -> None:
        failpoint(WAIT_FAILPOINT)
        wait()
        failpoint(WAIT_FAILPOINT)

    return passed
