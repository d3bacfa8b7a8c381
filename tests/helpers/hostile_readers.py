"""Readers of files of the user, as NNLO calls them."""

from pathlib import Path

from torch import nn

from nnlo_lib.data.fetch.archive import extract
from nnlo_lib.data.readers.array_file import find_arrays
from nnlo_lib.models.factory import build_model


def network(path: Path, trust: bool = False) -> nn.Module:
    return build_model(str(path), {}, (4,), 2, 0, trust=trust)


def rows(path: Path) -> object:
    return [array.rows(0, 1) for array in find_arrays(path, "x")]


def unpacked(path: Path) -> object:
    return extract(path, path.parent / "target")
