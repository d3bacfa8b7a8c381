"""Source of samples: arrays of one file, or of a pair of NPY files, with equal numbers of rows."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from nnlo_lib.core.errors import UserError
from nnlo_lib.data.readers.adapted_labels import adapt_labels
from nnlo_lib.data.readers.array_file import FileArray, find_arrays, is_npy
from nnlo_lib.data.readers.array_kind import is_number, is_text, stored_type


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

        Args:
            dtype: `data.reader.dtype`.
        """
        kind = str(self.labels.dtype) if self.labels.dtype.kind == "f" else "integers"
        labels = "text" if is_text(self.labels.dtype) else kind
        inputs = [_text(array, str(stored_type(array.dtype, dtype))) for array in self.inputs]
        return [*inputs, _text(self.labels, labels)]


def _text(array: FileArray, kind: str) -> str:
    return f"{array.name} {array.shape[1:]} {kind}"


def open_source(
    paths: tuple[Path, ...], keys: Sequence[str], labels: str, label_adaptor: str | None = None
) -> ArraySource:
    """Return the source in `paths`. Raises UserError if its arrays cannot be used as samples.

    Args:
        paths: one file, or the NPY files of features and labels.
        keys: names of input arrays, or of groups of input arrays.
        labels: name of the label array.
        label_adaptor: "path.py:function" that changes the labels; None: they stay as they are.
    """
    _refuse_wrong_pair(paths, keys)
    # The last path: in a pair of NPY files, the second has the labels.
    targets = find_arrays(paths[-1], labels)
    if targets[0].name != labels.strip("/"):
        raise UserError(
            f"{paths[-1]}: {labels} is a group, but only a single label array is supported; "
            f"set data.reader.labels to the name of one array"
        )
    source = ArraySource(tuple(array for key in keys for array in find_arrays(paths[0], key)), targets[0])
    if label_adaptor:
        source = ArraySource(source.inputs, adapt_labels(source.labels, label_adaptor))
    _refuse_unsuitable_arrays(source)
    return source


def check_same_layout(source: ArraySource, first: ArraySource, dtype: str | None) -> None:
    """Raise UserError unless the arrays of both sources have the same names, sample shapes and types.

    Args:
        source: source to check.
        first: source that the other sources must agree with.
        dtype: `data.reader.dtype`.
    """
    found, wanted = source.layout(dtype), first.layout(dtype)
    if found != wanted:
        surplus = ", ".join(each for each in found if each not in wanted) or "fewer arrays"
        absent = ", ".join(each for each in wanted if each not in found) or "no such array"
        raise UserError(
            f"{source.labels.path}: the file has {surplus}, but {first.labels.path} has {absent}; all files must have "
            f"arrays of the same names, sample shapes and types"
        )


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
            f"{paths[0]}: listed on one line with {paths[1]}, but only NPY files are listed in pairs; write each file on "
            f"its own line"
        )
    if not keys:
        raise UserError("data.reader.features: the list is empty; name at least one array")


def _refuse_unsuitable_arrays(source: ArraySource) -> None:
    for array in source.arrays:
        if not is_number(array.dtype) and not (array is source.labels and is_text(array.dtype)):
            raise UserError(
                f"{array.path}: {array.name} has the type {array.dtype}, but samples must be booleans, integers or "
                f"floats of up to 64 bits; set data.reader to another array, or convert the array"
            )
        if not array.shape or 0 in array.shape[1:]:
            raise UserError(
                f"{array.path}: {array.name} has the shape {array.shape}, but samples need the shape (samples, ...) "
                f"without empty axes; set data.reader to another array"
            )
    if len({array.shape[0] for array in source.arrays}) > 1:
        counts = ", ".join(f"{array.name} {array.shape[0]}" for array in source.arrays)
        raise UserError(
            f"{source.labels.path}: the arrays have different numbers of samples ({counts}); create the file again"
        )
