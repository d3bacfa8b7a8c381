"""Positions of a model's parameters in its flat vector, for layer-wise optimizers."""

from collections.abc import Iterable
from itertools import accumulate
from typing import NamedTuple

from torch import Size, nn

from nnlo_lib.core.errors import UserError


class ParameterSlot(NamedTuple):
    """One parameter: the values [start, stop) of the flat vector, in its memory order."""

    name: str
    start: int
    numel: int
    shape: Size

    @property
    def stop(self) -> int:
        """Index after the last value, where the next parameter starts."""
        return self.start + self.numel


Layout = tuple[ParameterSlot, ...]


def layout_of(parameters: Iterable[tuple[str, nn.Parameter]]) -> Layout:
    """Return the layout of the trainable parameters, one after another in the given order."""
    trained = [(name, each) for name, each in parameters if each.requires_grad]
    starts = accumulate((each.numel() for _, each in trained), initial=0)
    return tuple(
        ParameterSlot(name, start, each.numel(), each.shape)
        for (name, each), start in zip(trained, starts, strict=False)
    )


def layout_of_prefix(layout: Layout, prefix: str) -> tuple[slice, Layout]:
    """Return the slice of the parameters whose names start with `prefix`, and their layout within it.

    Raises:
        UserError: if no name starts with `prefix`, or if other parameters lie in between.
    """
    slots = [slot for slot in layout if slot.name.startswith(prefix)]
    if not slots:
        raise UserError(f"the model has no trainable parameter whose name starts with '{prefix}'")
    start, stop = slots[0].start, slots[-1].stop
    if sum(slot.numel for slot in slots) != stop - start:
        raise UserError(
            f"the parameters whose names start with '{prefix}' are not contiguous in the model; "
            "other parameters lie between them"
        )
    return slice(start, stop), tuple(slot._replace(start=slot.start - start) for slot in slots)
