"""Samples of another data set for a trained model: comparison with the training's data, and the same normalization."""

from collections.abc import Iterator

from nnlo_lib.config import Run
from nnlo_lib.core.errors import UserError
from nnlo_lib.data.store.manifest import DataManifest
from nnlo_lib.data.training_moments import Moments, moments_of, with_moments
from nnlo_lib.train.replica.precision import parameter_dtype
from nnlo_lib.train.replica.preprocess import Preprocessor


def preprocessor_of_other_data(
    run: Run, trained: DataManifest, other: DataManifest, device: str
) -> Preprocessor:
    """Return the preprocessing of other samples, with the moments by which the training normalized its inputs.

    Raises:
        UserError: if inputs, targets or classes of the data sets differ.
    """
    dtype = parameter_dtype(run.train.precision)
    _refuse_other_labels(trained, other)
    if len(other.inputs) != len(trained.inputs):
        raise UserError(
            f"{other.folder}: {len(other.inputs)} inputs, but the model was trained with {len(trained.inputs)}; convert "
            "the data set with the same inputs"
        )
    moments = list(_moments_in_units_of(trained, other))
    tensors = Preprocessor(with_moments(other, moments), run.data, device, dtype)
    wanted = Preprocessor(trained, run.data, device, dtype)
    for mine, theirs, shape, expected in zip(
        other.inputs, trained.inputs, tensors.shapes, wanted.shapes, strict=True
    ):
        # Bytes are scaled to 0..1 and other types are not, so that another type means other units.
        if (mine.dtype, shape) != (theirs.dtype, expected):
            raise UserError(
                f"{other.folder}: samples are {_text(mine.dtype, shape)}, but the model was trained with "
                f"{_text(theirs.dtype, expected)}; convert the data set to this shape and type"
            )
    return tensors


def _text(dtype: str, shape: tuple[int, ...]) -> str:
    return f"{dtype} {' x '.join(map(str, shape)) or 'numbers'}"


def _refuse_other_labels(trained: DataManifest, other: DataManifest) -> None:
    if (trained.classes is None) != (other.classes is None) or (
        trained.classes is None and trained.labels.shape != other.labels.shape
    ):
        raise UserError(
            f"{other.folder}: the labels are {_labels_text(other)}, but the model was trained with "
            f"{_labels_text(trained)}; use data with the same kind of labels"
        )
    if (other.classes or 0) > (trained.classes or 0):
        raise UserError(
            f"{other.folder}: {other.classes} classes, but the model was trained with {trained.classes}; use data whose "
            "classes are those of the training"
        )
    # Numbers without names cannot be compared.
    if not (other.class_names and trained.class_names):
        return
    for number, (name, expected) in enumerate(zip(other.class_names, trained.class_names, strict=False)):
        if name != expected:
            raise UserError(
                f"{other.folder}: class {number} is '{name}', but '{expected}' in the training; use data with the same "
                "classes in the same order"
            )


def _labels_text(data: DataManifest) -> str:
    return f"{data.classes} classes" if data.classes is not None else _text("numbers", data.labels.shape)


def _moments_in_units_of(trained: DataManifest, other: DataManifest) -> Iterator[dict[str, list[float]]]:
    """Yield the moments of each input of the training, in the stored units of the other data set."""
    moments: Moments = moments_of(trained)
    for each, column in zip(moments, trained.inputs, strict=True):
        factor = trained.scale / other.scale if column.dtype == "uint8" else 1.0
        yield {name: [factor * value for value in values] for name, values in each.items()}
