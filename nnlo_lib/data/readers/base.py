"""Units and contents of a data set, which each reader returns, and the call of a reader by its name."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import groupby
from pathlib import Path
from typing import Any, Literal
from unicodedata import normalize

import numpy as np
import numpy.typing as npt

from nnlo_lib.core.errors import UserError
from nnlo_lib.core.logging_setup import get_logger, write_stderr
from nnlo_lib.core.user_code import load_implementation

logger = get_logger(__name__)
Array = npt.NDArray[Any]
Inputs = tuple[Array, ...]
Labels = npt.NDArray[np.int64]
Indices = npt.NDArray[np.int64]
NonFinite = Literal["error", "allow"]

# Limits the memory of a conversion, which holds one shard, whatever the size of a sample.
MAX_SHARD_BYTES = 256 << 20
PLAN_SPLIT = "plan"  # points of a grid, row by row, with the true labels: for pictures of what models predict


@dataclass(frozen=True)
class SampleBlock:
    """The samples of one shard as they will be stored: an array (n, *shape) for each input, and labels (n, ...).

    Classes keep the numbers that they have in the original file.
    """

    inputs: Inputs  # a tuple of arrays
    labels: Array  # int64 classes or float32 numbers
    skipped: tuple[str, ...] = ()  # name and reason of each corrupt record that was left out
    weights: Array | None = None  # float64 (n,), of a table with `weight`


@dataclass(frozen=True)
class FilePart:
    """Consecutive samples of one file in a shard; `first` is the number of the first of them in the file, from 0."""

    path: Path
    first: int
    samples: int


@dataclass(frozen=True)
class ConversionUnit:
    """The part of a data set that becomes one shard; units are independent and can be converted in parallel.

    Attributes:
        split: `train`, `validation` or `test`.
        name: name of the shard, such as train-00000-of-00006.
        origin: file that an error about a sample names.
        read: reads the samples from the files again at each call; may raise UserError.
        files: all files of which the shard is made; empty: only `origin`.
        parts: files of the samples in order; may be empty.
        changes: ways in which the samples differ from those that earlier versions made of the same files and settings.
    """

    split: str
    name: str
    origin: Path
    read: Callable[[], SampleBlock]
    parts: tuple[FilePart, ...] = ()
    files: tuple[Path, ...] = ()
    changes: tuple[str, ...] = ()

    @property
    def sources(self) -> tuple[Path, ...]:
        """All files of which the shard is made."""
        return self.files or (self.origin,)

    def locate(self, row: int) -> str:
        """Return the file and the number of sample `row` of the shard, for an error message."""
        before = 0
        for part in self.parts:
            if row < before + part.samples:
                return f"{part.path}: sample {part.first + row - before}"
            before += part.samples
        return f"{self.origin}: sample {row} of shard {self.name}"


@dataclass(frozen=True)
class EncodedColumn:
    """How the cells of a table's column become inputs, as the training rows decided.

    Attributes:
        values: categories in sorted order; empty for a column of numbers.
        missing: value in place of missing ones; None: they are refused.
        one_hot: whether each category is an input, 0 or 1; otherwise, the number of the category is the input.
    """

    name: str
    values: tuple[str, ...] | tuple[float, ...] = ()
    missing: str | float | None = None
    one_hot: bool = False


@dataclass(frozen=True)
class DatasetContents:
    """Contents of the files of a data set.

    Attributes:
        units: the shards of all splits.
        inputs: name of each input of the model.
        first_class: number of the first class in the stored labels.
        classes: number of classes if the reader knows it before it reads the samples.
        class_names: names of the classes in the order of their numbers.
        non_finite: whether NaN and infinity in a sample are an error, or allowed and counted.
        notes: sentences about changes of the values, which the manifest keeps.
        columns: columns of a table in the order of the inputs, which the manifest keeps for predictions.
    """

    units: tuple[ConversionUnit, ...]
    inputs: tuple[str, ...] = ("features",)
    labels: str = "labels"  # name of the array of labels
    first_class: int = 0
    classes: int | None = None
    class_names: tuple[str, ...] = field(default=())
    non_finite: NonFinite = "error"
    notes: tuple[str, ...] = ()
    columns: tuple[EncodedColumn, ...] = ()


def reader_function(reader: str) -> str:
    """Return the place of a reader's function, for load_implementation: `read` of the module of its name, if it has one."""
    place = f"scikit_learn:read_{reader}" if reader in ("digits", "diabetes") else f"{reader}:read"
    return f"nnlo_lib.data.readers.{place}"


def read(reader: str, folder: Path, shard_size: int, options: Mapping[str, Any]) -> DatasetContents:
    """Return the contents of the files in `folder`. Raises UserError if files are damaged.

    Calls the function `read` of the module `reader` in this package, or the user's function. At this point, most readers read
    only the headers. `shard_size` is the maximum number of samples per shard; the reader tfrecord ignores it.
    """
    if ":" in reader:
        from nnlo_lib.data.readers.user_reader import read_with_user_reader  # which imports this module

        return read_with_user_reader(reader, folder, shard_size, options)
    contents: DatasetContents = load_implementation(reader_function(reader))(folder, shard_size, **options)
    if question := question_of_similar(contents.class_names):
        warn_once(f"data: the classes {question}")
    return contents


def contents_of_arrays(
    splits: Mapping[str, tuple[Array, Array]], origin: Path, shard_size: int
) -> DatasetContents:
    """Return the contents of data that fit in memory: inputs (n, ...) and labels (n, ...) of `train`, and `validation` and `test` if any.

    Raises UserError if a split has more inputs than labels, or fewer.
    """
    for split, (inputs, labels) in splits.items():
        if len(inputs) != len(labels):
            raise UserError(
                f"{origin}: {len(inputs):,} samples, but {len(labels):,} labels in the {split} split; correct the reader"
            )
    return DatasetContents(
        tuple(
            ConversionUnit(split, name, origin, partial(SampleBlock, (inputs[start:end],), labels[start:end]))
            for split, (inputs, labels) in splits.items()
            for name, start, end in shard_ranges(split, len(labels), shard_size, inputs[:1].nbytes)
        )
    )


@cache
def print_once(text: str) -> None:
    """Print a note to stderr once, although the files are read for the store's name, the shards, and to notice changes."""
    write_stderr(f"{text}\n")


@cache
def warn_once(text: str) -> None:
    """Log a warning once, for the reason of `print_once`."""
    logger.warning(text)


def shard_ranges(split: str, samples: int, shard_size: int, sample_bytes: int) -> list[tuple[str, int, int]]:
    """Return (name, first sample, end) of each shard of samples 0..samples-1.

    Args:
        split: first part of names like train-00000-of-00006.
        sample_bytes: size of a stored sample in bytes; a shard of several samples has at most MAX_SHARD_BYTES.
    """
    shard_size = max(1, min(shard_size, MAX_SHARD_BYTES // max(1, sample_bytes)))
    count = -(-samples // shard_size)
    return [
        (f"{split}-{index:05d}-of-{count:05d}", index * shard_size, min(samples, (index + 1) * shard_size))
        for index in range(count)
    ]


def composed(text: object) -> str:
    """Return a cell or a name as text in which a letter and its accent are one character (Unicode NFC), without spaces at its ends."""
    return normalize("NFC", str(text).strip())


def look_alike(name: str) -> str:
    """Return a form of a name that is equal for names that look alike."""
    return " ".join(normalize("NFKC", name).casefold().split()).rstrip(". ")


def question_of_similar(names: Iterable[str]) -> str:
    """Return a question about names that look alike; an empty string without any."""
    groups = [[*each] for _, each in groupby(sorted(names, key=look_alike), look_alike)]
    alike = [" and ".join(map(repr, each)) for each in groups if len(each) > 1]
    more = f" ({len(alike):,} such groups)" if len(alike) > 3 else ""
    question = "differ only by case, spaces or a final point; if they are one, write it the same everywhere"
    return f"{', '.join(alike[:3])}{more} {question}" if alike else ""
