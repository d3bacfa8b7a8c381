"""Readers of two data sets in scikit-learn: handwritten digits of 8x8 pixels, and the diabetes study.

The study has ten measurements per patient, and the progression of the disease after a year.
"""

from pathlib import Path

import numpy as np
import numpy.typing as npt

from nnlo_lib.core.errors import UserError
from nnlo_lib.data.fetch.archive import find_plain_or_gzip, open_decompressed
from nnlo_lib.data.readers.base import Array, DatasetContents, contents_of_arrays

MEASUREMENTS, TARGET = "diabetes_data_raw.csv.gz", "diabetes_target.csv.gz"
COLUMNS = 10  # age, sex, body mass index, blood pressure, six blood serum values
PIXELS = 64
TEST_EVERY = 5


def read_digits(folder: Path, shard_size: int) -> DatasetContents:
    """Return the contents of `digits.csv[.gz]`, whose rows have 64 pixels of 0..16 and a label.

    In each class every fifth image in file order is a test image. The split depends on the file alone, so all
    results refer to the same 1,442 + 355 images.
    """
    path, rows = _table(folder, "digits", "digits.csv.gz", PIXELS + 1, ",", np.uint8)
    if rows[:, :PIXELS].max() > 16:
        raise UserError(f"{path}: not the digits table (expected pixels of 0..16); fetch it again")
    features, labels = rows[:, :PIXELS].reshape(-1, 1, 8, 8), rows[:, PIXELS].astype(np.int64)
    test = np.zeros(len(labels), dtype=np.bool_)
    for label in np.unique(labels):
        # scikit-learn's file has no official split.
        test[np.flatnonzero(labels == label)[TEST_EVERY - 1 :: TEST_EVERY]] = True
    splits = {"train": (features[~test], labels[~test]), "test": (features[test], labels[test])}
    return contents_of_arrays(splits, path, shard_size)


def read_diabetes(folder: Path, shard_size: int) -> DatasetContents:
    """Return the contents of both tables as float32.

    Every fifth patient in file order is a test sample (354 + 88).
    """
    path, features = _table(folder, "diabetes", MEASUREMENTS, COLUMNS, None, np.float32)
    labels = _table(folder, "diabetes", TARGET, 1, None, np.float32)[1][:, 0]
    if len(features) != len(labels):
        raise UserError(
            f"{folder}: {len(features)} patients, but {len(labels)} targets; fetch both files again"
        )
    test = np.arange(len(labels)) % TEST_EVERY == TEST_EVERY - 1
    splits = {"train": (features[~test], labels[~test]), "test": (features[test], labels[test])}
    return contents_of_arrays(splits, path, shard_size)


def _table(
    folder: Path, dataset: str, name: str, columns: int, delimiter: str | None, dtype: npt.DTypeLike
) -> tuple[Path, Array]:
    """Return the path of a table and its rows, (rows, columns)."""
    path = find_plain_or_gzip(folder, name)
    if path is None:
        raise UserError(f"{folder / name}: file not found; fetch it: nnlo task fetch --dataset {dataset}")
    with open_decompressed(path) as stream:
        try:
            table = np.loadtxt(stream, delimiter=delimiter, dtype=dtype, ndmin=2)
        except ValueError as error:
            raise UserError(f"{path}: not a table of {dataset} ({error}); fetch it again") from error
    if table.shape[1] != columns:
        raise UserError(f"{path}: rows have {table.shape[1]} numbers instead of {columns}; fetch it again")
    return path, table
