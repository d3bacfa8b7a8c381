"""Labels of the user's arrays: the classes in all files of a data set, and the rule that converts the labels.

The rule is the same for all files, shards and splits. A function of the user can change the labels before.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal
from unicodedata import normalize

import numpy as np

from nnlo_lib.core.errors import UserError
from nnlo_lib.data.readers.array_file import FileArray
from nnlo_lib.data.readers.array_formats import is_text
from nnlo_lib.data.readers.base import Array
from nnlo_lib.data.readers.user_reader import adapted

PROBED_ROWS = 2  # enough to see type and shape without reading the file
SIGNS = (-1, 1)
SINGLE = ((), (1,))  # shapes of a label that is one number or text
FIX = "correct the label, or set data.reader.one_hot: false if the labels are numbers to learn"
LabelForm = Literal["classes", "one-hot rows", "numbers"]
LabelFiles = Mapping[str, Sequence[FileArray]]  # label arrays by split


@dataclass(frozen=True)
class LabelRule:
    """Rule that converts labels to classes, int64 (n,), or to numbers to learn, floats (n, ...), which have no `classes`."""

    form: LabelForm
    # labels in the order of their classes: class k is values[k]; empty: labels are class numbers
    values: tuple[str, ...] | tuple[int, ...] = ()
    first_class: int = 0
    classes: int | None = None
    notes: tuple[str, ...] = ()  # sentences about labels that were changed

    def convert(self, array: FileArray, start: int, end: int) -> Array:
        """Return the labels of samples start..end-1 of one file. Raises UserError if they do not fit the rule."""
        labels = array.rows(start, end)
        if labels.ndim == 2 and labels.shape[1] == 1:
            labels = labels[:, 0]
        if self.form == "numbers":
            # int64 labels denote classes.
            return labels if labels.dtype.kind == "f" else labels.astype(np.float64)
        found: Array
        if self.form == "one-hot rows":
            found = labels.argmax(axis=1).astype(np.int64)
            fits = ((labels != 0).sum(axis=1) == 1) & ((labels == 1).sum(axis=1) == 1)
        elif is_text(array.dtype):
            found = _text(labels, array)
            fits = np.ones(len(found), bool)
        else:
            with np.errstate(invalid="ignore"):
                # NaN and infinity give arbitrary integers here, which the comparison refuses.
                found = labels.astype(np.int64)
            fits = found == labels
        for row in np.flatnonzero(~fits)[:1]:
            raise UserError(
                f"{array.path}: the label of sample {start + row} is {np.array2string(labels[row], threshold=8)}, neither a class number "
                "nor a one-hot row; for regression targets set data.reader.one_hot: false"
            )
        if not self.values:
            return found
        values = np.array(self.values)
        classes = np.searchsorted(values, found).astype(np.int64)
        if not np.array_equal(values[np.minimum(classes, len(values) - 1)], found):
            raise UserError(f"{array.path}: the file changed while it was read; run again")
        return classes

    def different(self, arrays: Sequence[FileArray]) -> Array:
        """Return the different labels of some files, sorted."""
        return np.unique(
            np.concatenate([np.unique(self.convert(array, 0, array.shape[0])) for array in arrays])
        )


def _text(labels: Array, array: FileArray) -> Array:
    texts = labels.astype(object)
    try:
        return np.array(
            [normalize("NFC", text if isinstance(text, str) else text.decode()) for text in texts], np.str_
        )
    except UnicodeDecodeError as error:
        raise UserError(f"{array.path}: {array.name} is not text in UTF-8 ({error}); convert it") from error


def find_rule(files: LabelFiles, one_hot: bool, first_class: int | None) -> LabelRule:
    """Return the rule for all files; labels that denote classes are read, other labels are not.

    Only `one_hot`, type and shape decide on the form, so that all files agree. Raises UserError if labels cannot be classes, or
    if a split has a label that the training files do not have.
    """
    array = files["train"][0]
    named, single = is_text(array.dtype), array.shape[1:] in SINGLE
    if (one_hot and len(array.shape) > 2) or (named and not single):
        raise UserError(
            f"{array.path}: {array.name} has the shape {array.shape}, but class labels have the shape (samples,) or, if they are "
            "one-hot numbers, (samples, classes); name another array in data.reader.labels, or, for regression targets, set "
            "data.reader.one_hot: false"
        )
    is_class = single and (one_hot or array.dtype.kind != "f")
    if first_class is not None and (named or not is_class):
        raise UserError("data.reader.first_class: the labels are no class numbers; remove the key")
    if not is_class:
        return LabelRule("one-hot rows", classes=array.shape[1]) if one_hot else LabelRule("numbers")
    plain = LabelRule("classes")
    labels = {split: plain.different(arrays) for split, arrays in files.items()}
    values = labels["train"].tolist()
    signs = one_hot and first_class is None and values == [*SIGNS]
    reason = "" if signs or named else _misfit(labels["train"], files["train"], first_class)
    if reason := reason or _untrained_label(labels, files):
        if named or one_hot or first_class is not None:
            raise UserError(reason)
        note = "the integers in the labels are no class numbers; they are stored as numbers (float64)"
        return LabelRule("numbers", notes=(note,))
    if signs:
        return LabelRule("classes", SIGNS, classes=2, notes=("labels -1 and 1 are the classes 0 and 1",))
    if named:
        return LabelRule("classes", tuple(values), classes=len(values))
    first = first_class or 0
    return LabelRule("classes", first_class=first, classes=int(max(values, default=-1)) + 1 - first)


def _misfit(labels: Array, files: Sequence[FileArray], first_class: int | None) -> str:
    """Return why labels cannot be class numbers, or an empty string; `labels` are the different ones, sorted."""
    if not len(labels):
        return ""
    first, low, high = first_class or 0, int(labels[0]), int(labels[-1])
    if low < first or (low > first and first_class is None):
        fix = f"set data.reader.first_class: {low} if this is the first class"
        also = f", or {first} if class {first} has no sample" if low > first else ""
        return f"{_sample_of(low, files)}, the lowest label, but classes start at {first}; {fix}{also}"
    # Some classes may have no sample, but an output for each of 10^9 classes is never meant.
    if high + 1 - first > 2 * len(labels):
        return (
            f"{_sample_of(high, files)}, but the labels have only {len(labels):,} different values, so "
            f"that most classes of {first}..{high} have no sample; {FIX}"
        )
    return ""


def _untrained_label(labels: Mapping[str, Array], files: LabelFiles) -> str:
    """Return an error about a label that the training samples do not have, or an empty string."""
    for split, found in labels.items():
        for label in np.setdiff1d(found, labels["train"])[:1]:
            return (
                f"{_sample_of(label, files[split])} in the {split} split, but no training sample has "
                f"this label; correct the label, add training samples of this class, or remove the sample"
            )
    return ""


def _sample_of(label: object, files: Sequence[FileArray]) -> str:
    """Return the file and the sample that has a class label first, for an error message."""
    for array in files:
        for row in np.flatnonzero(LabelRule("classes").convert(array, 0, array.shape[0]) == label)[:1]:
            return f"{array.path}: the label of sample {row} is {label}"
    raise ValueError(f"no file has the label {label}")


@dataclass(frozen=True)
class AdaptedLabels(FileArray):
    """Labels as the function `adaptor`, "path.py:function", returns them; `shape` and `dtype` describe the result."""

    raw: FileArray
    adaptor: str

    @classmethod
    def of(cls, raw: FileArray, adaptor: str) -> "AdaptedLabels":
        """Return the labels that the function makes of an array; the first rows show type and shape."""
        (probed,) = adapted("labels", adaptor, (raw.rows(0, min(PROBED_ROWS, *raw.shape[:1])),), raw.path)
        return cls(raw.path, raw.name, (*raw.shape[:1], *probed.shape[1:]), probed.dtype, raw, adaptor)

    def rows(self, start: int, end: int) -> Array:
        """Return the labels of rows start..end-1. Raises UserError if the function fails or returns another shape or type."""
        (labels,) = adapted("labels", self.adaptor, (self.raw.rows(start, end),), self.path)
        found, first = (labels.shape[1:], labels.dtype), (self.shape[1:], self.dtype)
        if found != first:
            raise UserError(
                f"{self.path}: the label adaptor {self.adaptor} returned samples of {found[0]} {found[1]} from sample "
                f"{start} on, but of {first[0]} {first[1]} for sample 0; it must return one shape and type"
            )
        return labels
