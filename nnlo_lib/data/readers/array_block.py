"""Conversion of rows of the user's arrays to a block of samples, with an optional adaptor for the inputs."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from nnlo_lib.core.errors import USER_CODE_ERRORS, UserError
from nnlo_lib.core.user_code import error_with_source_line
from nnlo_lib.data.readers import Array, Inputs, SampleBlock
from nnlo_lib.data.readers.array_file import FileArray
from nnlo_lib.data.readers.array_kind import is_number
from nnlo_lib.data.readers.array_labels import LabelRule
from nnlo_lib.data.readers.joined_array import JoinedArray
from nnlo_lib.data.readers.nnlo_module import load_feature_adaptor


@dataclass(frozen=True)
class FileSlice:
    """Samples start..end-1 of one file."""

    inputs: tuple[FileArray, ...]
    labels: FileArray
    start: int
    end: int

    @property
    def samples(self) -> int:
        """Number of samples."""
        return self.end - self.start


@dataclass(frozen=True)
class BlockReader:
    """Reader of the samples of one shard.

    Attributes:
        rule: rule that converts the labels.
        adaptor, channels, dtype: see `readers.arrays.read`.
    """

    rule: LabelRule
    adaptor: str | None
    channels: str
    dtype: str | None

    def read(self, pieces: Sequence[FileSlice]) -> SampleBlock:
        """Return the samples of all pieces in order. Raises UserError with the path of an invalid file.

        Without an adaptor, memory is needed for the result and a small block.
        """
        inputs = self._inputs(pieces)
        labels = [self.rule.convert(piece.labels, piece.start, piece.end) for piece in pieces]
        return SampleBlock(inputs, labels[0] if len(labels) == 1 else np.concatenate(labels))

    def _inputs(self, pieces: Sequence[FileSlice]) -> Inputs:
        count = sum(piece.samples for piece in pieces)
        joined = tuple(
            JoinedArray(array.name, count, self.dtype, self.channels == "last") for array in pieces[0].inputs
        )
        for piece in pieces:
            if self.adaptor:
                self._add_adapted(joined, piece, pieces[0])
            else:
                for into, array in zip(joined, piece.inputs, strict=True):
                    start = piece.start
                    for rows in array.blocks(piece.start, piece.end):
                        into.add(rows, array.path, start)
                        start += len(rows)
        return tuple(each.array for each in joined)

    def _add_adapted(self, joined: Sequence[JoinedArray], piece: FileSlice, first: FileSlice) -> None:
        """Add the result of the adaptor for one piece.

        Args:
            joined: arrays to fill.
            piece: samples to read.
            first: first piece of the shard, for error messages.
        """
        assert self.adaptor
        path = piece.inputs[0].path
        raw = tuple(array.rows(piece.start, piece.end) for array in piece.inputs)
        arrays = _adapted(raw, self.adaptor, path)
        found, wanted = (_kinds(each) for each in (arrays, [into.first_rows for into in joined]))
        if wanted and found != wanted:
            raise UserError(
                f"{path}: the adaptor {self.adaptor} returned samples of {found}, but of "
                f"{wanted} for {first.inputs[0].path}; it must return the same shapes and types for all files"
            )
        for into, rows in zip(joined, arrays, strict=True):
            into.add(rows, path, piece.start)


def _kinds(arrays: Sequence[Array | None]) -> str:
    return ", ".join(f"{array.shape[1:]} {array.dtype}" for array in arrays if array is not None)


def _adapted(inputs: Inputs, adaptor: str, path: Path) -> Inputs:
    """Return the result of the user's function for `inputs`. Raises UserError if the function fails.

    The function gets the array of a single input or the tuple of several arrays, and returns the same number
    of arrays.

    Args:
        inputs: array (n, ...) of each input.
        adaptor: "path.py:function".
        path: file of the samples, for error messages.
    """
    samples = len(inputs[0])
    try:
        # Loaded by name for each block: units are sent to other processes, and a function of a user's file
        # cannot be pickled.
        changed = load_feature_adaptor(adaptor)(inputs[0] if len(inputs) == 1 else inputs)
        several = changed if isinstance(changed, tuple | list) else (changed,)
        arrays = tuple(np.ascontiguousarray(array) for array in several)
    except USER_CODE_ERRORS as error:
        raise UserError(f"{path}: the adaptor {adaptor} failed: {error_with_source_line(error)}") from error
    fit = [len(array) == samples and array.size and is_number(array.dtype) for array in arrays]
    if len(arrays) != len(inputs) or not all(fit):
        found = ", ".join(f"{array.shape} {array.dtype}" for array in arrays[:5])
        raise UserError(
            f"{path}: the adaptor {adaptor} returned {found} for {samples} samples; it must return "
            f"{len(inputs)} array(s) of numbers with {samples} rows"
        )
    return arrays
