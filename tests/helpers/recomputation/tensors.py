"""The tensors of a safetensors file, read from its bytes."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

STATISTICS = ("running_mean", "running_var", "num_batches_tracked")


def _header(path: Path) -> "tuple[dict[str, dict[str, object]], bytes]":
    content = path.read_bytes()
    end = 8 + int.from_bytes(content[:8], "little")
    return {
        name: each for name, each in json.loads(content[8:end]).items() if name != "__metadata__"
    }, content[end:]


def parameter_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """Return the shape of each tensor that is trained: of all but the statistics of batch norm."""
    shapes = {name: tuple(each["shape"]) for name, each in _header(path)[0].items()}
    return {name: shape for name, shape in shapes.items() if not name.endswith(STATISTICS)}


def read_tensors(path: Path, names: Sequence[str] = ()) -> dict[str, np.ndarray]:
    """Return the tensors of type float32, or those with the given names, in double precision."""
    header, content = _header(path)
    chosen = {
        name: each for name, each in header.items() if each["dtype"] == "F32" and (not names or name in names)
    }
    return {
        name: np.frombuffer(content[slice(*each["data_offsets"])], "<f4").reshape(each["shape"]).astype(float)
        for name, each in chosen.items()
    }
