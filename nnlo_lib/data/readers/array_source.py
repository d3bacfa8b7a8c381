"""Sources of samples: arrays of one file, or of a pair of NPY files, converted to a shard."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nnlo_lib.core.errors import UserError
from nnlo_lib.data.readers.array_file import FileArray, find_arrays, is_npy
from nnlo_lib.data.readers.array_formats import Unwritten, is_number, is_text, stored_type
from nnlo_lib.data.readers.base import Array, Inputs, NonFinite, SampleBlock
from nnlo_lib.data.readers.labels import AdaptedLabels, LabelRule
from nnlo_lib.data.readers.user_reader import adapted

PARTS = 8  # of a shard, in which its samples are read
FileSelection = str | Sequence[str]


@dataclass(frozen=True)
class ArraysOptions:
    """Keys of config.reader.ArraysReaderConfig."""

    train: FileSelection = ()
    test: FileSelection | None = None
    validation: FileSelection | None = None
    features: FileSelection = "features"
    labels: str = "labels"
    one_hot: bool = True
    first_class: int | None = None
    channels: str = "first"
    adaptor: str | None = None
    label_adaptor: str | None = None
    dtype: str | None = None
    non_finite: NonFinite = "error"
    unwritten: Unwritten = "error"


@dataclass(frozen=True)
class ArraySource:
    """Samples start..end-1 of one entry of a file list, one file or a pair of NPY files."""

    inputs: tuple[FileArray, ...]
    labels: FileArray
    start: int
    end: int

    @property
    def arrays(self) -> tuple[FileArray, ...]:
        """All arrays, inputs first, then labels."""
        return (*self.inputs, self.labels)

    @property
    def samples(self) -> int:
        """Number of samples."""
        return self.end - self.start

    def layout(self, dtype: str | None) -> list[str]:
        """Return name, sample shape and stored type (`data.reader.dtype`) of each array; text and integers are one type as labels."""
        kind = str(self.labels.dtype) if self.labels.dtype.kind == "f" else "integers"
        kinds = [str(stored_type(array.dtype, dtype)) for array in self.inputs]
        kinds.append("text" if is_text(self.labels.dtype) else kind)
        return [
            f"{array.name} {array.shape[1:]} {kind}" for array, kind in zip(self.arrays, kinds, strict=True)
        ]


def open_source(paths: tuple[Path, ...], options: ArraysOptions) -> ArraySource:
    """Return the source in `paths`. Raises UserError if its arrays cannot be used as samples."""
    keys = [options.features] if isinstance(options.features, str) else options.features
    single = [path for path in paths if is_npy(path)]
    if len(single) != (2 if len(paths) == 2 else 0) or (single and len(keys) != 1):
        raise UserError(
            f"{(single or paths)[0]}: an NPY file holds a single array; list two NPY files per line (features.npy labels.npy) and a single "
            "name in data.reader.features; only NPY files are listed in pairs, so put arrays of other files into one file"
        )
    if not keys:
        raise UserError("data.reader.features: the list is empty; name at least one array")
    # The last path: in a pair of NPY files, the second has the labels.
    labels = find_arrays(paths[-1], options.labels, options.unwritten)[0]
    if labels.name != options.labels.strip("/"):
        raise UserError(
            f"{paths[-1]}: {options.labels} is a group, but only a single label array is supported; "
            f"set data.reader.labels to the name of one array"
        )
    inputs = (array for key in keys for array in find_arrays(paths[0], key, options.unwritten))
    if options.label_adaptor:
        labels = AdaptedLabels.of(labels, options.label_adaptor)
    return _source(tuple(inputs), labels)


def _source(inputs: tuple[FileArray, ...], labels: FileArray) -> ArraySource:
    """Return all samples of arrays. Raises UserError if these cannot be used as samples."""
    arrays = (*inputs, labels)
    for array in arrays:
        if not is_number(array.dtype) and not (array is labels and is_text(array.dtype)):
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
    if len({array.shape[0] for array in arrays}) > 1:
        shapes = ", ".join(f"{array.name} {array.shape}" for array in arrays)
        remedy = (
            "their last axis is equal, as in files of MATLAB: write them transposed, samples first"
            if len({array.shape[-1] for array in arrays}) == 1
            else "name arrays whose first axis is the samples by data.reader, or correct the file"
        )
        raise UserError(
            f"{labels.path}: the arrays have different numbers of samples (shapes {shapes}); {remedy}"
        )
    return ArraySource(inputs, labels, 0, labels.shape[0])


def read_inputs(path: Path, names: Sequence[str], keys: Mapping[str, Any]) -> Inputs:
    """Return the arrays of a file without labels, as the reader `arrays` with these keys stores them.

    `names` are the names of the arrays; an NPY file has only one. Raises UserError if arrays cannot be used as samples.
    """
    used = ("adaptor", "channels", "dtype", "unwritten")
    options = ArraysOptions(**{key: value for key, value in keys.items() if key in used})
    arrays = tuple(array for name in names for array in find_arrays(path, name, options.unwritten))
    source = _source(arrays, arrays[0])
    if not source.samples:
        raise UserError(f"{path}: {arrays[0].name} has no samples")
    return BlockReader(LabelRule("numbers"), options).inputs([source])


def check_same_layout(source: ArraySource, first: ArraySource, dtype: str | None) -> None:
    """Raise UserError unless the arrays of both sources have the same names, sample shapes and types."""
    found, wanted = source.layout(dtype), first.layout(dtype)
    if found != wanted:
        surplus = ", ".join(each for each in found if each not in wanted) or "fewer arrays"
        absent = ", ".join(each for each in wanted if each not in found) or "no such array"
        raise UserError(
            f"{source.labels.path}: the file has {surplus}, but {first.labels.path} has {absent}; all files must have "
            f"arrays of the same names, sample shapes and types"
        )


@dataclass(frozen=True)
class BlockReader:
    """Reader of the samples of one shard."""

    rule: LabelRule
    options: ArraysOptions

    def read(self, pieces: Sequence[ArraySource]) -> SampleBlock:
        """Return the samples of all pieces in order. Raises UserError with the path of an invalid file."""
        labels = [self.rule.convert(piece.labels, piece.start, piece.end) for piece in pieces]
        return SampleBlock(self.inputs(pieces), labels[0] if len(labels) == 1 else np.concatenate(labels))

    def inputs(self, pieces: Sequence[ArraySource]) -> Inputs:
        """Return the inputs of all pieces in order, without their labels."""
        count, adaptor = sum(each.samples for each in pieces), self.options.adaptor
        filled, first = 0, ""
        joined: Inputs = ()
        for piece in pieces:
            path = piece.inputs[0].path
            # An adaptor gets all samples of a file; otherwise, memory is needed for the result and a small part.
            step = piece.samples if adaptor else max(1, count // PARTS)
            for start in range(piece.start, piece.end, step):
                rows: Inputs = tuple(
                    array.rows(start, min(start + step, piece.end)) for array in piece.inputs
                )
                if adaptor:
                    rows = adapted("features", adaptor, rows, path)
                    found = ", ".join(f"{array.shape[1:]} {array.dtype}" for array in rows)
                    first = first or found
                    if found != first:
                        raise UserError(
                            f"{path}: the adaptor {adaptor} returned samples of {found}, but of {first} for "
                            f"{pieces[0].inputs[0].path}; it must return the same shapes and types for all files"
                        )
                stored = [self._stored(*each, start) for each in zip(rows, piece.inputs, strict=True)]
                joined = joined or tuple(np.empty((count, *each.shape[1:]), each.dtype) for each in stored)
                for into, each in zip(joined, stored, strict=True):
                    into[filled : filled + len(each)] = each
                filled += len(rows[0])
        return joined

    def _stored(self, rows: Array, source: FileArray, start: int) -> Array:
        """Return samples (n, ...), whose first is sample `start` of a file, as the store has them.

        Raises UserError if the stored type cannot hold a value; rounding of floats does not count.
        """
        moved = np.moveaxis(rows, -1, 1) if self.options.channels == "last" and rows.ndim > 3 else rows
        with np.errstate(all="ignore"):
            stored = np.ascontiguousarray(moved, stored_type(rows.dtype, self.options.dtype))
        if not np.can_cast(moved.dtype, stored.dtype):
            wrong = np.isinf(stored) & np.isfinite(moved) if stored.dtype.kind == "f" else stored != moved
            for place in np.argwhere(wrong)[:1]:
                raise UserError(
                    f"{source.path}: {source.name} of sample {start + place[0]} has the value {moved[tuple(place)]}, which {stored.dtype} "
                    "cannot hold; set data.reader.dtype to another type"
                )
        return stored
