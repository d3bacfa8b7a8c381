"""Labels of the user's arrays: the classes in all files of a data set, and the rule that converts the labels.

The rule is the same for all files, shards and splits. A function of the user can change the labels before.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal
from unicodedata import normalize

import numpy as np

from nnlo_lib.core.errors import USER_CODE_ERRORS, UserError
from nnlo_lib.core.user_code import error_with_source_line
from nnlo_lib.data.readers.array_file import FileArray
from nnlo_lib.data.readers.array_formats import is_number, is_text
from nnlo_lib.data.readers.base import Array
from nnlo_lib.data.readers.user_reader import load_label_adaptor

PROBED_ROWS = 2  # enough to see type and shape without reading the file
SIGNS = (-1, 1)
FIX = "correct the label, or set data.reader.one_hot: false if the labels are numbers to learn"
LabelForm = Literal["classes", "one-hot rows", "numbers"]


@dataclass(frozen=True)
class LabelRule:
    """Rule that converts labels.

    Attributes:
        form: classes: one class per sample, int64 (n,); one-hot rows: they become classes; numbers: regression
            targets, floats (n, ...).
        values: labels in the order of their classes: class k is values[k]; empty: labels are class numbers.
    """

    form: LabelForm
    values: tuple[str, ...] | tuple[int, ...] = ()

    def convert(self, array: FileArray, start: int, end: int) -> Array:
        """Return the labels of samples start..end-1 of one file. Raises UserError if they do not fit the rule."""
        labels = array.rows(start, end)
        if labels.ndim == 2 and labels.shape[1] == 1:
            labels = labels[:, 0]
        if self.form == "one-hot rows":
            fits = ((labels != 0).sum(axis=1) == 1) & ((labels == 1).sum(axis=1) == 1)
            _refuse_other_than_classes(labels, fits, array, start)
            hot: Array = labels.argmax(axis=1).astype(np.int64)
            return hot
        if self.form == "numbers":
            # int64 labels denote classes.
            return labels if labels.dtype.kind == "f" else labels.astype(np.float64)
        if is_text(array.dtype):
            found = _text(labels, array)
        else:
            with np.errstate(invalid="ignore"):
                # NaN and infinity give arbitrary integers here, which the comparison below refuses.
                found = labels.astype(np.int64)
            _refuse_other_than_classes(labels, found == labels, array, start)
        if not self.values:
            return found
        values = np.array(self.values)
        classes = np.searchsorted(values, found).astype(np.int64)
        if not np.array_equal(values[np.minimum(classes, len(values) - 1)], found):
            raise UserError(f"{array.path}: the file changed while it was read; run again")
        return classes


def _text(labels: Array, array: FileArray) -> Array:
    texts = labels.astype(object)
    try:
        return np.array(
            [normalize("NFC", text if isinstance(text, str) else text.decode()) for text in texts], np.str_
        )
    except UnicodeDecodeError as error:
        raise UserError(f"{array.path}: {array.name} is not text in UTF-8 ({error}); convert it") from error


def _refuse_other_than_classes(labels: Array, fits: Array, array: FileArray, start: int) -> None:
    for row in np.flatnonzero(~fits)[:1]:
        shown = np.array2string(labels[row], threshold=8)
        raise UserError(
            f"{array.path}: the label of sample {start + row} is {shown}, neither a class number nor a "
            f"one-hot row; for regression targets set data.reader.one_hot: false"
        )


@dataclass(frozen=True)
class ClassLabels:
    """Labels of a data set.

    Attributes:
        rule: rule that converts the labels.
        first_class: number of the first class in the converted labels.
        classes: number of classes; None if the labels are numbers.
        notes: sentences about labels that were changed.
    """

    rule: LabelRule
    first_class: int = 0
    classes: int | None = None
    notes: tuple[str, ...] = ()

    @property
    def class_names(self) -> tuple[str, ...]:
        """Names of the classes; empty if they have only numbers."""
        return tuple(str(value) for value in self.rule.values)


def find_classes(
    files: Mapping[str, Sequence[FileArray]], one_hot: bool, first_class: int | None
) -> ClassLabels:
    """Return the classes of all files; labels that denote classes are read, other labels are not.

    Args:
        files: label arrays by split.

    Raises UserError if labels cannot be classes, or if a split has a label that the training files do not have.
    """
    array = files["train"][0]
    form = _label_form(array, one_hot)
    if form == "classes" and not is_text(array.dtype):
        return _numbered_classes(files, one_hot, first_class)
    if first_class is not None:
        raise UserError("data.reader.first_class: the labels are no class numbers; remove the key")
    if form != "classes":
        return ClassLabels(LabelRule(form), classes=array.shape[1] if form == "one-hot rows" else None)
    labels = _different_labels(files)
    if reason := _untrained_label(labels, files):
        raise UserError(reason)
    values = tuple(labels["train"].tolist())
    return ClassLabels(LabelRule("classes", values), classes=len(values))


def _label_form(array: FileArray, one_hot: bool) -> LabelForm:
    """Return the form of labels. Only `one_hot`, type and shape decide, so that all files agree."""
    single = array.shape[1:] in ((), (1,))
    if single and (one_hot or array.dtype.kind != "f"):
        return "classes"
    return "one-hot rows" if one_hot else "numbers"


def _numbered_classes(
    files: Mapping[str, Sequence[FileArray]], one_hot: bool, first_class: int | None
) -> ClassLabels:
    labels = _different_labels(files)
    signs = one_hot and first_class is None and labels["train"].tolist() == [*SIGNS]
    reason = "" if signs else _misfit(labels["train"], files["train"], first_class)
    reason = reason or _untrained_label(labels, files)
    if reason and (one_hot or first_class is not None):
        raise UserError(reason)
    if signs:
        note = "labels -1 and 1 are the classes 0 and 1"
        return ClassLabels(LabelRule("classes", SIGNS), classes=2, notes=(note,))
    if reason:
        note = "the integers in the labels are no class numbers; they are stored as numbers (float64)"
        return ClassLabels(LabelRule("numbers"), notes=(note,))
    first, highest = first_class or 0, max(labels["train"].tolist(), default=-1)
    return ClassLabels(LabelRule("classes"), first, int(highest) + 1 - first)


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


def _different_labels(files: Mapping[str, Sequence[FileArray]]) -> dict[str, Array]:
    """Return the different labels of each split, sorted."""
    rule = LabelRule("classes")
    return {
        split: np.unique(
            np.concatenate([np.unique(rule.convert(array, 0, array.shape[0])) for array in arrays])
        )
        for split, arrays in files.items()
    }


def _untrained_label(labels: Mapping[str, Array], files: Mapping[str, Sequence[FileArray]]) -> str:
    """Return an error about a label that the training samples do not have, or an empty string.

    `labels` are the different labels of each split, `files` its label arrays.
    """
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


def refuse_labels_of_wrong_shape(labels: FileArray, one_hot: bool) -> None:
    """Raise UserError if labels of this type cannot have their shape."""
    if one_hot and len(labels.shape) > 2:
        raise UserError(
            f"{labels.path}: {labels.name} has the shape {labels.shape}, but class labels have the shape (samples,) or, "
            f"one-hot, (samples, classes); for regression targets set data.reader.one_hot: false"
        )
    if is_text(labels.dtype) and labels.shape[1:] not in ((), (1,)):
        raise UserError(
            f"{labels.path}: {labels.name} is text of the shape {labels.shape}, but class names have the shape "
            f"(samples,); name another array in data.reader.labels"
        )


@dataclass(frozen=True)
class AdaptedLabels(FileArray):
    """Labels as the function returns them; `shape` and `dtype` describe the result.

    Attributes:
        adaptor: "path.py:function", called with some rows of the array.
    """

    raw: FileArray
    adaptor: str

    def rows(self, start: int, end: int) -> Array:
        """Return the labels of rows start..end-1. Raises UserError if the function fails or returns another shape or type."""
        labels = _adapted_rows(self.raw, self.adaptor, self.raw.rows(start, end))
        found, first = (labels.shape[1:], labels.dtype), (self.shape[1:], self.dtype)
        if found != first:
            raise UserError(
                f"{self.path}: the label adaptor {self.adaptor} returned samples of {found[0]} {found[1]} from sample "
                f"{start} on, but of {first[0]} {first[1]} for sample 0; it must return one shape and type"
            )
        return labels


def adapt_labels(raw: FileArray, adaptor: str) -> AdaptedLabels:
    """Return the labels that the function `adaptor` makes of an array; the first rows show type and shape."""
    probed = _adapted_rows(raw, adaptor, raw.rows(0, min(PROBED_ROWS, *raw.shape[:1])))
    return AdaptedLabels(raw.path, raw.name, (*raw.shape[:1], *probed.shape[1:]), probed.dtype, raw, adaptor)


def _adapted_rows(raw: FileArray, adaptor: str, rows: Array) -> Array:
    """Return the function's result for some rows. Raises UserError if it fails or returns no numbers for as many rows."""
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
