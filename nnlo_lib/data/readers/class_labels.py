"""Search of the classes in the labels of all files of a data set."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from nnlo_lib.core.errors import UserError
from nnlo_lib.data.readers import Array
from nnlo_lib.data.readers.array_file import FileArray
from nnlo_lib.data.readers.array_kind import is_text
from nnlo_lib.data.readers.array_labels import LabelRule, label_form, sample_of

SIGNS = (-1, 1)
FIX = "correct the label, or set data.reader.one_hot: false if the labels are numbers to learn"


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
        one_hot: see `readers.arrays.read`.
        first_class: number of the first class in the files; None: 0.

    Raises:
        UserError: if labels cannot be classes, or if a split has a label that the training files do not have.
    """
    array = files["train"][0]
    form = label_form(array, one_hot)
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
    """Return why labels cannot be class numbers, or an empty string.

    Args:
        labels: different labels of the training samples, sorted.
        files: label arrays of the training files.
        first_class: number of the first class; None: 0.
    """
    if not len(labels):
        return ""
    first, low, high = first_class or 0, int(labels[0]), int(labels[-1])
    if low < first or (low > first and first_class is None):
        fix = f"set data.reader.first_class: {low} if this is the first class"
        also = f", or {first} if class {first} has no sample" if low > first else ""
        return f"{sample_of(low, files, LabelRule('classes'))}, the lowest label, but classes start at {first}; {fix}{also}"
    # Some classes may have no sample, but an output for each of 10^9 classes is never meant.
    if high + 1 - first > 2 * len(labels):
        return (
            f"{sample_of(high, files, LabelRule('classes'))}, but the labels have only {len(labels):,} different values, so "
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

    Args:
        labels: different labels of each split.
        files: label arrays by split.
    """
    for split, found in labels.items():
        for label in np.setdiff1d(found, labels["train"])[:1]:
            return (
                f"{sample_of(label, files[split], LabelRule('classes'))} in the {split} split, but no training sample has "
                f"this label; correct the label, add training samples of this class, or remove the sample"
            )
    return ""
