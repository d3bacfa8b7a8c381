"""Conversion of rows of the user's arrays to a block of samples, with an optional adaptor for the inputs."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from nnlo_lib.core.errors import UserError
from nnlo_lib.core.user_code import error_with_source_line, load_user_function
from nnlo_lib.data.readers import Array, Inputs, SampleBlock
from nnlo_lib.data.readers.array_file import FileArray
from nnlo_lib.data.readers.array_kind import is_number
from nnlo_lib.data.readers.nnlo_module import resolve_adaptor


@dataclass(frozen=True)
class FileSlice:
    """Samples start..end-1 of one file."""

    inputs: tuple[FileArray, ...]
    labels: FileArray
    start: int
    end: int


def read_block(
    pieces: Sequence[FileSlice], one_hot: bool, adaptor: str | None, channels: str = "first"
) -> SampleBlock:
    """Return the samples of all pieces in order. Raises UserError with the path of an invalid file.

    Args:
        pieces: samples to read.
        one_hot, adaptor, channels: see `readers.arrays.read`.
    """
    labels = read_labels(pieces, one_hot)
    inputs = [_inputs(piece, adaptor) for piece in pieces]
    for piece, arrays in zip(pieces, inputs, strict=True):
        if _kinds(arrays) != _kinds(inputs[0]):
            raise UserError(
                f"{piece.inputs[0].path}: the adaptor {adaptor} returned samples of {_kinds(arrays)}, but of "
                f"{_kinds(inputs[0])} for {pieces[0].inputs[0].path}; it must return the same shapes and types for all files"
            )
    joined = tuple(_joined(each) for each in zip(*inputs, strict=True))
    return SampleBlock(tuple(map(_channels_first, joined)) if channels == "last" else joined, labels)


def read_labels(pieces: Sequence[FileSlice], one_hot: bool) -> Array:
    """Return the labels of all pieces in order, without reading their inputs; `one_hot` as in `readers.arrays.read`."""
    return _joined([_targets(piece, one_hot) for piece in pieces])


def _channels_first(array: Array) -> Array:
    """Return images (n, ..., channels) as (n, channels, ...); leave arrays of fewer than 4 axes unchanged."""
    return np.ascontiguousarray(np.moveaxis(array, -1, 1)) if array.ndim > 3 else array


def _joined(arrays: Sequence[Array]) -> Array:
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)


def _kinds(arrays: Inputs) -> str:
    return ", ".join(f"{array.shape[1:]} {array.dtype}" for array in arrays)


def _targets(piece: FileSlice, one_hot: bool) -> Array:
    """Return classes, int64 (n,), or regression targets, floats (n, ...).

    Only `one_hot`, dtype and shape decide between the two, so that all shards agree. Integers in rows become
    float64, because int64 labels denote classes.
    """
    labels = piece.labels.rows(piece.start, piece.end)
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.ndim == 1 and (one_hot or labels.dtype.kind != "f"):
        return _whole(labels, piece)
    if one_hot:
        return _hot(labels, piece)
    return labels if labels.dtype.kind == "f" else labels.astype(np.float64)


def _whole(labels: Array, piece: FileSlice) -> Array:
    with np.errstate(invalid="ignore"):
        # NaN and infinity give arbitrary integers here, which the comparison below refuses.
        classes = labels.astype(np.int64)
    _refuse_other_than_classes(labels, classes == labels, piece)
    return classes


def _hot(labels: Array, piece: FileSlice) -> Array:
    fits = ((labels != 0).sum(axis=1) == 1) & ((labels == 1).sum(axis=1) == 1)
    _refuse_other_than_classes(labels, fits, piece)
    classes: Array = labels.argmax(axis=1).astype(np.int64)
    return classes


def _refuse_other_than_classes(labels: Array, fits: Array, piece: FileSlice) -> None:
    for row in np.flatnonzero(~fits)[:1]:
        shown = np.array2string(labels[row], threshold=8)
        raise UserError(
            f"{piece.labels.path}: the label of sample {piece.start + row} is {shown}, neither a class number nor a "
            f"one-hot row; for regression targets set data.reader.one_hot: false"
        )


def _inputs(piece: FileSlice, adaptor: str | None) -> Inputs:
    inputs = tuple(array.rows(piece.start, piece.end) for array in piece.inputs)
    return _adapted(inputs, adaptor, piece.inputs[0].path) if adaptor else inputs


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
        changed = resolve_adaptor(load_user_function(adaptor))(inputs[0] if len(inputs) == 1 else inputs)
        several = changed if isinstance(changed, tuple | list) else (changed,)
        arrays = tuple(np.ascontiguousarray(array) for array in several)
    except Exception as error:
        raise UserError(f"{path}: the adaptor {adaptor} failed: {error_with_source_line(error)}") from error
    fit = [len(array) == samples and array.size and is_number(array.dtype) for array in arrays]
    if len(arrays) != len(inputs) or not all(fit):
        found = ", ".join(f"{array.shape} {array.dtype}" for array in arrays[:5])
        raise UserError(
            f"{path}: the adaptor {adaptor} returned {found} for {samples} samples; it must return "
            f"{len(inputs)} array(s) of numbers with {samples} rows"
        )
    return arrays
