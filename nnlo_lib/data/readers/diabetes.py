"""Reader of scikit-learn's diabetes study: ten measurements per patient, disease progression after a year."""

from pathlib import Path

import numpy as np

from nnlo_lib.core.errors import UserError
from nnlo_lib.data.fetch.gzip_content import find_plain_or_gzip, open_decompressed
from nnlo_lib.data.readers import Array, DatasetContents, contents_of_arrays

MEASUREMENTS, TARGET = "diabetes_data_raw.csv.gz", "diabetes_target.csv.gz"
COLUMNS = 10  # age, sex, body mass index, blood pressure, six blood serum values
TEST_EVERY = 5


def read(folder: Path, shard_size: int) -> DatasetContents:
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
        raise UserError(
            f"{folder / name}: file not found; fetch it: python scripts/fetch.py --dataset diabetes"
        )
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
