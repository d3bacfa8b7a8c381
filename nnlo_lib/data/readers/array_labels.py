"""Rule that converts the labels of the user's arrays, the same for all files, shards and splits."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from nnlo_lib.core.errors import UserError
from nnlo_lib.data.readers import Array
from nnlo_lib.data.readers.array_file import FileArray
from nnlo_lib.data.readers.array_kind import is_text

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
        """Return the labels of samples start..end-1 of one file. Raises UserError if they do not fit the rule.

        Args:
            array: label array of the file.
            start: first sample.
            end: last sample + 1.
        """
        labels = array.rows(start, end)
        if labels.ndim == 2 and labels.shape[1] == 1:
            labels = labels[:, 0]
        if self.form == "one-hot rows":
            return _hot(labels, array, start)
        if self.form == "numbers":
            # int64 labels denote classes.
            return labels if labels.dtype.kind == "f" else labels.astype(np.float64)
        classes = _text(labels, array) if is_text(array.dtype) else _whole(labels, array, start)
        return self._numbered(classes, array) if self.values else classes

    def _numbered(self, labels: Array, array: FileArray) -> Array:
        values = np.array(self.values)
        classes = np.searchsorted(values, labels).astype(np.int64)
        if not np.array_equal(values[np.minimum(classes, len(values) - 1)], labels):
            raise UserError(f"{array.path}: the file changed while it was read; run again")
        return classes


def label_form(array: FileArray, one_hot: bool) -> LabelForm:
    """Return the form of labels. Only `one_hot`, type and shape decide, so that all files agree."""
    single = array.shape[1:] in ((), (1,))
    if single and (one_hot or array.dtype.kind != "f"):
        return "classes"
    return "one-hot rows" if one_hot else "numbers"


def _text(labels: Array, array: FileArray) -> Array:
    texts = labels.astype(object)
    try:
        return np.array([text if isinstance(text, str) else text.decode() for text in texts], np.str_)
    except UnicodeDecodeError as error:
        raise UserError(f"{array.path}: {array.name} is not text in UTF-8 ({error}); convert it") from error


def _whole(labels: Array, array: FileArray, start: int) -> Array:
    with np.errstate(invalid="ignore"):
        # NaN and infinity give arbitrary integers here, which the comparison below refuses.
        classes = labels.astype(np.int64)
    _refuse_other_than_classes(labels, classes == labels, array, start)
    return classes


def _hot(labels: Array, array: FileArray, start: int) -> Array:
    fits = ((labels != 0).sum(axis=1) == 1) & ((labels == 1).sum(axis=1) == 1)
    _refuse_other_than_classes(labels, fits, array, start)
    classes: Array = labels.argmax(axis=1).astype(np.int64)
    return classes


def _refuse_other_than_classes(labels: Array, fits: Array, array: FileArray, start: int) -> None:
    for row in np.flatnonzero(~fits)[:1]:
        shown = np.array2string(labels[row], threshold=8)
        raise UserError(
            f"{array.path}: the label of sample {start + row} is {shown}, neither a class number nor a "
            f"one-hot row; for regression targets set data.reader.one_hot: false"
        )


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


def sample_of(label: object, files: Sequence[FileArray], rule: LabelRule) -> str:
    """Return the file and the sample that has a label first, for an error message.

    Args:
        label: the label.
        files: label arrays that are searched.
        rule: rule that converts the labels.
    """
    for array in files:
        for row in np.flatnonzero(rule.convert(array, 0, array.shape[0]) == label)[:1]:
            return f"{array.path}: the label of sample {row} is {label}"
    raise ValueError(f"no file has the label {label}")
