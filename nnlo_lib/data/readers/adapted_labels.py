"""Label array of a file after the user's function has changed it."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from nnlo_lib.core.errors import USER_CODE_ERRORS, UserError
from nnlo_lib.core.user_code import error_with_source_line
from nnlo_lib.data.readers import Array
from nnlo_lib.data.readers.array_file import FileArray
from nnlo_lib.data.readers.array_kind import is_number
from nnlo_lib.data.readers.nnlo_module import load_label_adaptor

PROBED_ROWS = 2  # enough to see type and shape without reading the file


@dataclass(frozen=True)
class AdaptedLabels(FileArray):
    """Labels as the function returns them; `shape` and `dtype` are those of the result.

    Attributes:
        raw: label array in the file.
        adaptor: "path.py:function", called with some rows of the array.
    """

    raw: FileArray
    adaptor: str

    def blocks(self, start: int, end: int) -> Iterator[Array]:
        """Yield the labels of rows start..end-1. Raises UserError if the function fails or returns another shape or type."""
        done = start
        for block in self.raw.blocks(start, end):
            labels = adapted_rows(self.raw, self.adaptor, block)
            found, first = (labels.shape[1:], labels.dtype), (self.shape[1:], self.dtype)
            if found != first:
                raise UserError(
                    f"{self.path}: the label adaptor {self.adaptor} returned samples of {found[0]} {found[1]} from sample "
                    f"{done} on, but of {first[0]} {first[1]} for sample 0; it must return one shape and type"
                )
            done += len(block)
            yield labels


def adapt_labels(raw: FileArray, adaptor: str) -> AdaptedLabels:
    """Return the labels that the function makes of an array; the first rows show type and shape.

    Args:
        raw: label array in a file.
        adaptor: "path.py:function".
    """
    probed = adapted_rows(raw, adaptor, raw.rows(0, min(PROBED_ROWS, *raw.shape[:1])))
    return AdaptedLabels(raw.path, raw.name, (*raw.shape[:1], *probed.shape[1:]), probed.dtype, raw, adaptor)


def adapted_rows(raw: FileArray, adaptor: str, rows: Array) -> Array:
    """Return the function's result for some rows. Raises UserError if it fails or returns no numbers for as many rows.

    Args:
        raw: label array in a file, for error messages.
        adaptor: "path.py:function".
        rows: some rows of the array.
    """
    try:
        labels = np.ascontiguousarray(load_label_adaptor(adaptor)(rows))
    except USER_CODE_ERRORS as error:
        raise UserError(
            f"{raw.path}: the label adaptor {adaptor} failed: {error_with_source_line(error)}"
        ) from error
    if labels.shape[:1] != rows.shape[:1] or not is_number(labels.dtype):
        raise UserError(
            f"{raw.path}: the label adaptor {adaptor} returned {labels.shape} {labels.dtype} for {len(rows)} samples; it "
            f"must return one array of numbers with {len(rows)} rows"
        )
    return labels
