"""Readers of two data sets in scikit-learn: handwritten digits of 8x8 pixels, and the diabetes study.

The study has ten measurements per patient, and the progression of the disease after a year.
"""

from pathlib import Path

import numpy as np

from nnlo_lib.core.errors import UserError
from nnlo_lib.data.fetch.gzip_content import find_plain_or_gzip, open_decompressed
from nnlo_lib.data.readers.base import Array, DatasetContents, Labels, contents_of_arrays

MEASUREMENTS, TARGET = "diabetes_data_raw.csv.gz", "diabetes_target.csv.gz"
COLUMNS = 10  # age, sex, body mass index, blood pressure, six blood serum values
PIXELS = 64
TEST_EVERY = 5


def read_digits(folder: Path, shard_size: int) -> DatasetContents:
    """Return the contents of `digits.csv[.gz]`.

    In each class every fifth image in file order is a test image. The split depends on the file alone, so all
    results refer to the same 1,442 + 355 images.
    """
    path = find_plain_or_gzip(folder, "digits.csv.gz")
    if path is None:
        raise UserError(
            f"{folder / 'digits.csv.gz'}: file not found; fetch it: nnlo task fetch --dataset digits"
        )
    rows = _rows(path)
    features, labels = rows[:, :PIXELS].reshape(-1, 1, 8, 8), rows[:, PIXELS].astype(np.int64)
    test = _is_test(labels)
    return contents_of_arrays(
        {split: (features[mask], labels[mask]) for split, mask in {"train": ~test, "test": test}.items()},
        path,
        shard_size,
    )


def _rows(path: Path) -> Array:
    """Return the table (images, 65) uint8: 64 pixels of 0..16 and a label per row."""
    with open_decompressed(path) as stream:
        try:
            rows = np.loadtxt(stream, delimiter=",", dtype=np.uint8, ndmin=2)
        except ValueError as error:
            raise UserError(f"{path}: not the digits table ({error}); fetch it again") from error
    if rows.shape[1] != PIXELS + 1 or rows[:, :PIXELS].max() > 16:
        raise UserError(
            f"{path}: not the digits table (expected rows of 64 pixels in 0..16 and a label); fetch it again"
        )
    return rows


def _is_test(labels: Labels) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    test = np.zeros(len(labels), dtype=np.bool_)
    for label in np.unique(labels):
        # scikit-learn's file has no official split.
        test[np.flatnonzero(labels == label)[TEST_EVERY - 1 :: TEST_EVERY]] = True
    return test


def read_diabetes(folder: Path, shard_size: int) -> DatasetContents:
    """Return the contents of both tables as float32.

    Every fifth patient in file order is a test sample (354 + 88).
    """
    features, labels = _table(folder, MEASUREMENTS, COLUMNS), _table(folder, TARGET, 1)[:, 0]
    if len(features) != len(labels):
        raise UserError(
            f"{folder}: {len(features)} patients, but {len(labels)} targets; fetch both files again"
        )
    test = np.arange(len(labels)) % TEST_EVERY == TEST_EVERY - 1
    return contents_of_arrays(
        {split: (features[mask], labels[mask]) for split, mask in {"train": ~test, "test": test}.items()},
        folder / MEASUREMENTS,
        shard_size,
    )


def _table(folder: Path, name: str, columns: int) -> Array:
    path = find_plain_or_gzip(folder, name)
    if path is None:
        raise UserError(f"{folder / name}: file not found; fetch it: nnlo task fetch --dataset diabetes")
    with open_decompressed(path) as stream:
        try:
            table = np.loadtxt(stream, dtype=np.float32, ndmin=2)
        except ValueError as error:
            raise UserError(
                f"{path}: not a table of the diabetes data set ({error}); fetch it again"
            ) from error
    if table.shape[1] != columns:
        raise UserError(f"{path}: rows have {table.shape[1]} numbers instead of {columns}; fetch it again")
    return table
