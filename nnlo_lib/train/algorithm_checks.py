"""Mistakes of a user's algorithm that no rank would notice: models that differ, and state that checkpoints do not hold."""

import zlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nnlo_lib.algorithms.base import Algorithm, fraction_unequal
from nnlo_lib.core.errors import InvariantError, UserError
from nnlo_lib.train.replica.replica import Replica

MAX_DEPTH = 4  # of containers among the attributes


def refuse_unequal_models(algorithm: Algorithm, replica: Replica, where: str) -> None:
    """Refuse, on all ranks, models that differ if the algorithm says that they are one; all ranks call it."""
    if algorithm.replicas_differ or algorithm.comm.size == 1:
        return
    # Neither clock nor counted bytes depend on a check.
    with algorithm.comm.outside_of_time():
        share = fraction_unequal(algorithm.comm, replica.theta)
    if not share:
        return
    name, is_users = _innermost(algorithm)
    found = f"{name}: in {where}, the parameters of {share:.0%} of the ranks differ from those of rank 0"
    if not is_users:
        raise InvariantError(f"{found}; the cause is an error in nnlo, or faulty memory or network of a node")
    raise UserError(
        f"{found}, but the class has `replicas_differ = False`; let all ranks make the same steps (self.comm.allreduce(replica.grad) in "
        "on_gradient), load one model in before_evaluation(), or set `replicas_differ = True`"
    )


def _innermost(algorithm: Algorithm) -> tuple[str, bool]:
    """Return the class of the algorithm, or of the one between workers of several processes, and whether it is the user's."""
    kind = type(getattr(algorithm, "_outer", algorithm))
    return kind.__name__, kind.__module__.partition(".")[0] != __package__.partition(".")[0]


class AttributeGuard:
    """Finds attributes of a user's algorithm that change in training and that its method `state` does not return.

    Made after `Algorithm.start`. Classes of nnlo are not watched.
    """

    def __init__(self, algorithm: Algorithm) -> None:
        self._algorithm = getattr(algorithm, "_outer", algorithm)
        self._name, self._is_watched = _innermost(algorithm)
        self._before = {name: _digest(each) for name, each in self._attributes()} if self._is_watched else {}

    def unsaved(self, saved: Mapping[str, Tensor], replica: Replica) -> str:
        """Return a warning of the attributes that have changed and that no saved tensor holds, once, or an empty string.

        The vectors of the replica are no state of the algorithm.
        """
        if not self._is_watched:
            return ""
        self._is_watched = False
        others = replica.theta, replica.grad, replica.buffers
        vectors = {each.data_ptr() for each in (*others, *saved.values())}
        held = {_digest(each) for each in saved.values()}
        held |= {float(each) for each in saved.values() if each.numel() == 1}
        names = [
            name
            for name, value in self._attributes()
            if _digest(value) not in held | {self._before.get(name)}
            and not (isinstance(value, Tensor) and value.data_ptr() in vectors)
        ]
        if not names:
            return ""
        return (
            f"{self._name}: {', '.join(names)} changed in training, but state() does not return "
            f"{'it' if len(names) == 1 else 'them'}: if a step reads the value of an earlier step, a resumed training has another "
            "result; return it from state() and restore it in load_state()"
        )

    def _attributes(self) -> Iterator[tuple[str, Any]]:
        """Yield the values among the attributes, also of containers, by name."""
        for name, value in vars(self._algorithm).items():
            if name not in ("comm", "_vote"):
                yield from _values(f"self.{name}", value, MAX_DEPTH)


def _values(name: str, value: Any, depth: int) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping | list | tuple) and depth:
        items = value.items() if isinstance(value, Mapping) else enumerate(value)
        for key, each in items:
            yield from _values(f"{name}[{key!r}]", each, depth - 1)
    elif hasattr(value, "state_dict") and depth:  # an optimizer, a module
        yield from _values(f"{name}.state_dict()", value.state_dict(), depth - 1)
    elif isinstance(value, torch.Generator):
        yield name, value.get_state()
    elif isinstance(value, np.random.Generator):
        yield name, repr(value.bit_generator.state)
    elif isinstance(value, Tensor | np.ndarray | int | float | str):
        yield name, value


def _digest(value: Any) -> Any:
    """Return what changes with the value, without a copy of it."""
    if isinstance(value, Tensor):
        value = (value.float() if value.dtype == torch.bfloat16 else value).detach().cpu().numpy()
    if isinstance(value, np.ndarray):
        return value.nbytes, str(value.dtype), zlib.crc32(np.ascontiguousarray(value).tobytes())
    return value
