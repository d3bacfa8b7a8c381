"""The user's own arrays in lists of HDF5, NPZ or NPY files, as NNLO and mpi_learn read them."""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import accumulate
from pathlib import Path

from nnlo_lib.core.errors import UserError
from nnlo_lib.data.readers import ConversionUnit, DatasetContents, SampleBlock, shard_ranges
from nnlo_lib.data.readers.array_block import FileSlice, read_block
from nnlo_lib.data.readers.array_source import ArraySource, check_same_layout, open_source
from nnlo_lib.data.readers.file_list import FileSelection, resolve_files
from nnlo_lib.data.readers.nnlo_module import is_nnlo_module, reader_options_of_module


def read(
    folder: Path,
    shard_size: int,
    *,
    train: FileSelection,
    test: FileSelection | None = None,
    validation: FileSelection | None = None,
    features: FileSelection = "features",
    labels: str = "labels",
    one_hot: bool = True,
    channels: str = "first",
    adaptor: str | None = None,
) -> DatasetContents:
    """List the files of each split: text lists, patterns or files, below `folder`.

    A group, or a list of keys, as `features` is several inputs. Labels (n,) or (n, 1) of integers are classes; with
    `one_hot` whole floats and rows (n, classes) with a single 1 are too; others are numbers to be learned.
    With channels "last" the last axis of samples of three axes or more is moved to the front.
    `adaptor`, "path.py:function", is called on some samples of one file at a time: on the array (n, ...) of the
    one input, or on the tuple of several; it returns as many, of n rows each.
    An uncompressed array is read by range; a compressed HDF5 by chunk; a compressed NPZ from its start for each
    shard, so that large ones are slow. Raises UserError if files are missing or damaged, or differ in kind.
    `train` may be one of NNLO's modules, `path.py`, which says all this.
    """
    if is_nnlo_module(train):
        return read(
            folder,
            shard_size,
            test=test,
            one_hot=one_hot,
            channels=channels,
            **reader_options_of_module(str(train)),
        )
    _refuse_lost(adaptor)
    keys = [features] if isinstance(features, str) else features
    wanted = {"train": train, "test": test, "validation": validation}
    splits = {
        split: [open_source(paths, keys, labels) for paths in resolve_files(folder, each)]
        for split, each in wanted.items()
        if each is not None
    }
    first, *others = (source for sources in splits.values() for source in sources)
    _refuse_labels(first, one_hot)
    for other in others:
        check_same_layout(other, first)
    names, target = tuple(array.name for array in first.inputs), labels.strip("/").rpartition("/")[2]
    _refuse_one_name_for_two(names, target)
    reading = partial(read_block, one_hot=one_hot, adaptor=adaptor, channels=channels)
    units = [
        unit for split, sources in splits.items() for unit in _units(split, sources, shard_size, reading)
    ]
    return DatasetContents(tuple(units), inputs=names, labels=target)


def _units(
    split: str,
    sources: Sequence[ArraySource],
    shard_size: int,
    reading: Callable[[list[FileSlice]], SampleBlock],
) -> Iterator[ConversionUnit]:
    ends = list(accumulate(source.samples for source in sources))
    for name, start, end in shard_ranges(split, ends[-1], shard_size):
        pieces = _pieces(sources, ends, start, end)
        yield ConversionUnit(split, name, pieces[0].labels.path, partial(reading, pieces))


def _pieces(sources: Sequence[ArraySource], ends: Sequence[int], start: int, end: int) -> list[FileSlice]:
    """Find samples start..end-1 of the files one behind the other; `ends[i]` counts those up to file i."""
    pieces, index = [], bisect_right(ends, start)
    while start < end:
        source, before, last = sources[index], ends[index] - sources[index].samples, min(end, ends[index])
        if start < last:
            pieces.append(FileSlice(source.inputs, source.labels, start - before, last - before))
        start, index = last, index + 1
    return pieces


def _refuse_lost(adaptor: str | None) -> None:
    if adaptor and not Path(adaptor.rpartition(":")[0]).is_file():
        raise UserError(f"data.reader.adaptor: there is no file {adaptor.rpartition(':')[0]}")


def _refuse_labels(source: ArraySource, one_hot: bool) -> None:
    labels = source.labels
    if one_hot and len(labels.shape) > 2:
        raise UserError(
            f"{labels.path}: {labels.name} has the shape {labels.shape}; classes are (samples,) or one-hot rows (samples, "
            f"classes); if labels are numbers to be learned set data.reader.one_hot: false"
        )


def _refuse_one_name_for_two(names: Sequence[str], labels: str) -> None:
    for name in names:
        if names.count(name) > 1 or name == labels or name.startswith(f"{labels}/"):
            raise UserError(
                f"data.reader: two arrays would be called {name}; name each feature once, and none like the labels"
            )
