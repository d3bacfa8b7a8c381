"""The user's own arrays in lists of HDF5, NPZ or NPY files, as NNLO and mpi_learn read them."""

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from nnlo_lib.data.readers import Array, Block, Contents, Inputs, Unit, ranges
from nnlo_lib.data.readers.array_file import Kind, kinds, rows
from nnlo_lib.data.readers.file_list import Wanted, files
from nnlo_lib.errors import UserError


@dataclass(frozen=True)
class Source:
    """The arrays of one entry of a list: the file and the key of each input, of the labels last."""

    places: tuple[tuple[Path, str], ...]
    kinds: tuple[Kind, ...]

    @property
    def samples(self) -> int:
        """Rows of every array."""
        return self.kinds[0].shape[0]

    @property
    def path(self) -> Path:
        """The file that errors name."""
        return self.places[0][0]


@dataclass(frozen=True)
class Reading:
    """How rows become samples: `one_hot` says that labels are classes, `adaptor` changes the inputs."""

    one_hot: bool
    adaptor: str | None


def read(
    folder: Path,
    shard_size: int,
    *,
    train: Wanted,
    test: Wanted | None = None,
    validation: Wanted | None = None,
    features: Wanted = "features",
    labels: str = "labels",
    one_hot: bool = True,
    adaptor: str | None = None,
) -> Contents:
    """List the files of each split; see docs/data.md for what `train`, `features` and the others may be.

    With `one_hot`, labels are classes: integers, whole numbers, or rows with a single 1. Raises UserError if files are
    missing or damaged, or do not agree on what a sample is.
    """
    wanted = {"train": train, "test": test, "validation": validation}
    units, names = [], None
    first: Source | None = None
    for split, listed in wanted.items():
        if listed is None:
            continue
        sources = []
        for paths in files(folder, listed):
            names, source = _open(paths, features, labels)
            first = first or source
            _refuse_other_kind(source, first)
            sources.append(source)
        for name, start, end in ranges(split, sum(source.samples for source in sources), shard_size):
            block = partial(_block, sources, start, end, Reading(one_hot, adaptor))
            units.append(Unit(split, name, sources[0].path, block))
    return Contents(tuple(units), inputs=tuple(names or ()), labels=labels.rpartition("/")[2])


def _open(paths: tuple[Path, ...], features: Wanted, labels: str) -> tuple[list[str], Source]:
    """Find the arrays wanted in one file, or in a pair of NPY files."""
    if len(paths) == 2:
        there = {"features": (paths[0], kinds(paths[0])[""]), "labels": (paths[1], kinds(paths[1])[""])}
        names, labels = ["features"], "labels"
    else:
        there = {name: (paths[0], kind) for name, kind in kinds(paths[0]).items()}
        names = _names(paths[0], there, [features] if isinstance(features, str) else features)
    chosen = [(name, *_one(paths[0], there, name)) for name in [*names, labels]]
    source = Source(
        tuple((path, name if len(paths) == 1 else "") for name, path, _ in chosen),
        tuple(kind for *_, kind in chosen),
    )
    _refuse_what_is_no_sample(source)
    return names, source


def _names(path: Path, there: Mapping[str, Any], wanted: Sequence[str]) -> list[str]:
    """Expand groups to the arrays in them, sorted by name, as NNLO's H5Data does."""
    names = []
    for key in wanted:
        inside = sorted(name for name in there if name.startswith(f"{key}/"))
        names += [key] if key in there or not inside else inside
    return names


def _one(path: Path, there: Mapping[str, tuple[Path, Kind]], key: str) -> tuple[Path, Kind]:
    if key in there:
        return there[key]
    if any(name.startswith(f"{key}/") for name in there):
        raise UserError(f"{path}: {key} is a group; labels must be one array (data.reader.labels)")
    raise UserError(f"{path} has no {key}; it has {', '.join(sorted(there)) or 'nothing'} (data.reader)")


def _refuse_what_is_no_sample(source: Source) -> None:
    for (path, name), kind in zip(source.places, source.kinds, strict=True):
        if kind.dtype.kind not in "fiub":
            raise UserError(f"{path}: {name} holds {kind.dtype}; numbers are wanted")
        if not kind.shape or kind.shape[0] != source.samples:
            counts = ", ".join(
                f"{each[1]} {kind.shape}" for each, kind in zip(source.places, source.kinds, strict=True)
            )
            raise UserError(f"{path}: its arrays differ in their number of samples: {counts}")


def _refuse_other_kind(source: Source, first: Source) -> None:
    for (path, name), kind, (other, _), wanted in zip(
        source.places, source.kinds, first.places, first.kinds, strict=True
    ):
        if (kind.shape[1:], kind.dtype.newbyteorder("=")) != (
            wanted.shape[1:],
            wanted.dtype.newbyteorder("="),
        ):
            raise UserError(
                f"{path}: {name} is {kind.shape[1:]} {kind.dtype}, but in {other} {wanted.shape[1:]} {wanted.dtype}; "
                f"all files must hold samples of one kind"
            )


def _block(sources: Sequence[Source], start: int, end: int, reading: Reading) -> Block:
    """Read samples start..end-1 of the files one behind the other."""
    pieces, before = [], 0
    for source in sources:
        first, last = max(start - before, 0), min(end - before, source.samples)
        if first < last:
            pieces.append(_piece(source, first, last, reading))
        before += source.samples
    *inputs, labels = (np.concatenate(each) for each in zip(*pieces, strict=True))
    return Block(tuple(inputs), labels)


def _piece(source: Source, start: int, end: int, reading: Reading) -> tuple[Array, ...]:
    *inputs, labels = (rows(path, name, start, end) for path, name in source.places)
    adapted = _adapted(tuple(inputs), reading.adaptor, source.path) if reading.adaptor else tuple(inputs)
    return (*adapted, _classes(labels, source.path, start) if reading.one_hot else _numbers(labels))


def _classes(labels: Array, path: Path, start: int) -> Array:
    """Turn labels into class numbers, int64 (n,): integers, whole numbers, or rows with a single 1."""
    rows_of = labels.reshape(len(labels), -1)
    if rows_of.shape[1] == 1:
        classes, fits = rows_of[:, 0], rows_of[:, 0] == np.floor(rows_of[:, 0])
    else:
        classes, fits = rows_of.argmax(axis=1), ((rows_of != 0).sum(axis=1) == 1) & (rows_of.max(axis=1) == 1)
    for row in np.flatnonzero(~fits)[:1]:
        raise UserError(
            f"{path}: the label of sample {start + row} is {np.array2string(labels[row], threshold=8)}, neither a class "
            f"nor a row with a single 1; if labels are numbers to be learned set data.reader.one_hot: false"
        )
    numbers: Array = classes.astype(np.int64)
    return numbers


def _numbers(labels: Array) -> Array:
    """Keep labels as numbers to be learned; integers become floats, for integers are classes."""
    return labels if labels.dtype.kind == "f" else labels.astype(np.float64)


def _adapted(inputs: Inputs, adaptor: str, path: Path) -> Inputs:
    """Let the user's function change the inputs of some samples: one array, or a tuple if there are several."""
    try:
        changed = _function(adaptor)(inputs[0] if len(inputs) == 1 else inputs)
        arrays = changed if isinstance(changed, tuple) else (changed,)
        return tuple(np.ascontiguousarray(array) for array in arrays)
    except Exception as error:
        raise UserError(f"the adaptor {adaptor} failed on {path}: {type(error).__name__}: {error}") from error


def _function(name: str) -> Callable[..., Any]:
    path, _, function = name.rpartition(":")
    specification = importlib.util.spec_from_file_location(Path(path).stem, path)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    found: Callable[..., Any] = getattr(module, function)
    return found
