"""Sources of samples: arrays of one file, or of a pair of NPY files, converted to a shard."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nnlo_lib.core.errors import USER_CODE_ERRORS, UserError
from nnlo_lib.core.user_code import error_with_source_line
from nnlo_lib.data.readers.array_file import FileArray, find_arrays, is_npy
from nnlo_lib.data.readers.array_formats import Unwritten, is_number, is_text, stored_type
from nnlo_lib.data.readers.base import Array, Inputs, SampleBlock
from nnlo_lib.data.readers.labels import LabelRule, adapt_labels
from nnlo_lib.data.readers.user_reader import load_feature_adaptor

PARTS = 8  # of a shard, in which its samples are read


@dataclass(frozen=True)
class ArraySource:
    """Input and label arrays of one entry of a file list: one file or a pair of NPY files."""

    inputs: tuple[FileArray, ...]
    labels: FileArray

    @property
    def arrays(self) -> tuple[FileArray, ...]:
        """All arrays, inputs first, then labels."""
        return (*self.inputs, self.labels)

    @property
    def samples(self) -> int:
        """Number of samples, equal to the number of rows of every array."""
        return self.labels.shape[0]

    def layout(self, dtype: str | None) -> list[str]:
        """Return name, sample shape and stored type of each array; text and integers are one type as labels.

        `dtype` is `data.reader.dtype`.
        """
        kind = str(self.labels.dtype) if self.labels.dtype.kind == "f" else "integers"
        labels = "text" if is_text(self.labels.dtype) else kind
        kinds = [*(str(stored_type(array.dtype, dtype)) for array in self.inputs), labels]
        return [
            f"{array.name} {array.shape[1:]} {kind}" for array, kind in zip(self.arrays, kinds, strict=True)
        ]


def open_source(
    paths: tuple[Path, ...],
    keys: Sequence[str],
    labels: str,
    label_adaptor: str | None = None,
    unwritten: Unwritten = "error",
) -> ArraySource:
    """Return the source in `paths`. Raises UserError if its arrays cannot be used as samples.

    Args:
        label_adaptor: "path.py:function" that changes the labels; None: they stay as they are.
    """
    _refuse_wrong_pair(paths, keys)
    # The last path: in a pair of NPY files, the second has the labels.
    targets = find_arrays(paths[-1], labels, unwritten)
    if targets[0].name != labels.strip("/"):
        raise UserError(
            f"{paths[-1]}: {labels} is a group, but only a single label array is supported; "
            f"set data.reader.labels to the name of one array"
        )
    inputs = (array for key in keys for array in find_arrays(paths[0], key, unwritten))
    source = ArraySource(tuple(inputs), targets[0])
    if label_adaptor:
        source = ArraySource(source.inputs, adapt_labels(source.labels, label_adaptor))
    _refuse_unsuitable_arrays(source)
    return source


def _refuse_wrong_pair(paths: tuple[Path, ...], keys: Sequence[str]) -> None:
    # A damaged NPY file is no wrong pair; the error of its header follows.
    single = [path for path in paths if is_npy(path) or path.suffix == ".npy"]
    if single and (len(single) != 2 or len(keys) != 1):
        raise UserError(
            f"{single[0]}: an NPY file holds a single array; list two NPY files per line (features.npy labels.npy) and "
            f"set data.reader.features to a single name"
        )
    if len(paths) == 2 and not single:
        raise UserError(
            f"{paths[0]}: listed on one line with {paths[1]}, but only NPY files are listed in pairs; put both arrays "
            f"into one file, and name them by data.reader.features and data.reader.labels"
        )
    if not keys:
        raise UserError("data.reader.features: the list is empty; name at least one array")


def _refuse_unsuitable_arrays(source: ArraySource) -> None:
    for array in source.arrays:
        if not is_number(array.dtype) and not (array is source.labels and is_text(array.dtype)):
            remedy = (
                "write each of its fields as an array"
                if array.dtype.names
                else "set data.reader to another array, or convert the array"
            )
            raise UserError(
                f"{array.path}: {array.name} has the type {array.dtype}, but samples must be booleans, integers or "
                f"floats of up to 64 bits; {remedy}"
            )
        if not array.shape or 0 in array.shape[1:]:
            raise UserError(
                f"{array.path}: {array.name} has the shape {array.shape}, but samples need the shape (samples, ...) "
                f"without empty axes; set data.reader to another array"
            )
    if len({array.shape[0] for array in source.arrays}) > 1:
        shapes = ", ".join(f"{array.name} {array.shape}" for array in source.arrays)
        is_transposed = len({array.shape[-1] for array in source.arrays}) == 1
        remedy = (
            "their last axis is equal, as in files of MATLAB: write them transposed, samples first"
            if is_transposed
            else "name arrays whose first axis is the samples by data.reader, or correct the file"
        )
        raise UserError(
            f"{source.labels.path}: the arrays have different numbers of samples (shapes {shapes}); {remedy}"
        )


def read_inputs(path: Path, names: Sequence[str], options: Mapping[str, Any]) -> Inputs:
    """Return the arrays of a file without labels, as the reader `arrays` with these options stores them.

    `names` are the names of the arrays; an NPY file has only one. Raises UserError if arrays cannot be used as samples.
    """
    arrays = tuple(
        array for name in names for array in find_arrays(path, name, options.get("unwritten", "error"))
    )
    _refuse_unsuitable_arrays(ArraySource(arrays, arrays[0]))
    if not arrays[0].shape[0]:
        raise UserError(f"{path}: {arrays[0].name} has no samples")
    adaptor, dtype = options.get("adaptor"), options.get("dtype")
    reader = BlockReader(LabelRule("numbers"), adaptor, options.get("channels", "first"), dtype)
    return reader.inputs([FileSlice(arrays, arrays[0], 0, arrays[0].shape[0])])


def check_same_layout(source: ArraySource, first: ArraySource, dtype: str | None) -> None:
    """Raise UserError unless the arrays of both sources have the same names, sample shapes and types.

    `dtype` is `data.reader.dtype`.
    """
    found, wanted = source.layout(dtype), first.layout(dtype)
    if found != wanted:
        surplus = ", ".join(each for each in found if each not in wanted) or "fewer arrays"
        absent = ", ".join(each for each in wanted if each not in found) or "no such array"
        raise UserError(
            f"{source.labels.path}: the file has {surplus}, but {first.labels.path} has {absent}; all files must have "
            f"arrays of the same names, sample shapes and types"
        )


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


def _misfits(values: Array, stored: Array) -> Array:
    """Return the rows in which a stored value is another number; rounding of floats does not count."""
    if np.can_cast(values.dtype, stored.dtype):
        return np.empty(0, np.int64)
    wrong = np.isinf(stored) & np.isfinite(values) if stored.dtype.kind == "f" else stored != values
    return np.flatnonzero(wrong.reshape(len(wrong), -1).any(axis=1))


@dataclass(frozen=True)
class BlockReader:
    """Reader of the samples of one shard."""

    rule: LabelRule
    adaptor: str | None
    channels: str
    dtype: str | None

    def read(self, pieces: Sequence[FileSlice]) -> SampleBlock:
        """Return the samples of all pieces in order. Raises UserError with the path of an invalid file."""
        labels = [self.rule.convert(piece.labels, piece.start, piece.end) for piece in pieces]
        return SampleBlock(self.inputs(pieces), labels[0] if len(labels) == 1 else np.concatenate(labels))

    def inputs(self, pieces: Sequence[FileSlice]) -> Inputs:
        """Return the inputs of all pieces in order, without their labels."""
        count, filled, first = sum(piece.samples for piece in pieces), 0, ""
        joined: Inputs = ()
        for piece in pieces:
            # An adaptor gets all samples of a file; otherwise, memory is needed for the result and a small part.
            step = piece.samples if self.adaptor else max(1, count // PARTS)
            for start in range(piece.start, piece.end, step):
                rows: Inputs = tuple(
                    array.rows(start, min(start + step, piece.end)) for array in piece.inputs
                )
                path = piece.inputs[0].path
                if self.adaptor:
                    rows = _adapted(rows, self.adaptor, path)
                    found = ", ".join(f"{array.shape[1:]} {array.dtype}" for array in rows)
                    first = first or found
                    if found != first:
                        raise UserError(
                            f"{path}: the adaptor {self.adaptor} returned samples of {found}, but of "
                            f"{first} for {pieces[0].inputs[0].path}; it must return the same shapes and types for all files"
                        )
                stored = [self._stored(*each, start) for each in zip(rows, piece.inputs, strict=True)]
                joined = joined or tuple(np.empty((count, *each.shape[1:]), each.dtype) for each in stored)
                for into, each in zip(joined, stored, strict=True):
                    into[filled : filled + len(each)] = each
                filled += len(rows[0])
        return joined

    def _stored(self, rows: Array, source: FileArray, start: int) -> Array:
        """Return samples (n, ...), whose first is sample `start` of a file, as the store has them.

        Raises UserError if the stored type cannot hold a value.
        """
        moved = np.moveaxis(rows, -1, 1) if self.channels == "last" and rows.ndim > 3 else rows
        with np.errstate(all="ignore"):
            stored = np.ascontiguousarray(moved, stored_type(rows.dtype, self.dtype))
        for row in _misfits(moved, stored)[:1]:
            value = moved[row][moved[row] != stored[row]].flat[0]
            raise UserError(
                f"{source.path}: {source.name} of sample {start + row} has the value {value}, which {stored.dtype} cannot hold; "
                f"set data.reader.dtype to another type"
            )
        return stored


def _adapted(inputs: Inputs, adaptor: str, path: Path) -> Inputs:
    """Return the result of the user's function for `inputs`. Raises UserError if the function fails.

    The function gets the array of a single input or the tuple of several arrays, and returns the same number
    of arrays.
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
