"""Reader of the pickles of CIFAR's python layout, which creates only arrays of bytes and built-in values."""

import io
import pickle
import struct
from pathlib import Path
from typing import Any

import numpy as np

from nnlo_lib.core.errors import UserError
from nnlo_lib.data.readers import Array, Labels

PIXELS = 3 * 32 * 32
MAX_FILE_BYTES = 1 << 30  # the official files have at most 154 million bytes
DAMAGED = (pickle.UnpicklingError, EOFError, ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError, MemoryError, UnicodeError, AssertionError, struct.error)  # fmt: skip


class _Dtype:
    """Stand-in for numpy.dtype('u1'). Its state is ignored: it is the byte order, which single bytes do not have."""

    def __init__(self, name: object, *_: object) -> None:
        if name not in ("u1", b"u1"):
            raise pickle.UnpicklingError(f"an array has the type {name!r} instead of 'u1'")

    def __setstate__(self, _: object) -> None: ...


class _Ndarray:
    """Stand-in for numpy.ndarray, which would allocate any declared shape before its bytes are read."""

    array: Array = np.empty(0, np.uint8)  # kept if the pickle sets no state

    def __init__(self, *_: object) -> None: ...

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, dtype, fortran, data = state
        # The official files are in C order; one wrong bit here would mix the pixels of all images.
        if not isinstance(data, bytes) or not isinstance(dtype, _Dtype) or fortran:
            raise pickle.UnpicklingError("an array does not have bytes in C order")
        self.array = np.frombuffer(data, np.uint8).reshape(shape)


def _encode(text: str, encoding: str) -> bytes:
    """Stand-in for codecs.encode: Python 3 writes bytes in protocol 2 as codecs.encode(text, 'latin1')."""
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"a text has the encoding {encoding!r} instead of 'latin1'")
    return text.encode("latin1")


ADMITTED = {
    ("numpy.core.multiarray", "_reconstruct"): _Ndarray,
    # numpy 2 has renamed numpy.core; the official files have the old name.
    ("numpy._core.multiarray", "_reconstruct"): _Ndarray,
    # Only an argument of _reconstruct, which ignores it here.
    ("numpy", "ndarray"): None,
    ("numpy", "dtype"): _Dtype,
    ("_codecs", "encode"): _encode,
}


# The implementation in Python (undocumented, but part of each CPython), because the one in C allocates 16 bytes times the largest index in the pickle.
class _Unpickler(pickle._Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in ADMITTED:
            raise pickle.UnpicklingError(f"the file refers to {module}.{name}, which CIFAR files do not use")
        return ADMITTED[module, name]


def load_batch(path: Path, key: str) -> tuple[Array, Labels]:
    """Return pixels (n, 3072) uint8 and labels (n,). Raises UserError if the file is not a CIFAR batch.

    `key`: name of the labels in the file.
    """
    content = _content(path)
    data, labels = content.get("data"), content.get(key)
    pixels = data.array if isinstance(data, _Ndarray) else np.empty(0, np.uint8)
    if pixels.shape[1:] != (PIXELS,) or not isinstance(labels, list) or len(labels) != len(pixels):
        raise UserError(
            f"{path}: not a CIFAR batch (expected `data` of shape (n, {PIXELS}) and n values in `{key}`); download or copy it "
            f"again"
        )
    if not all(isinstance(label, int) and 0 <= label < 100 for label in labels):
        raise UserError(f"{path}: a label is not an integer in 0..99; download or copy the file again")
    return pixels, np.array(labels, np.int64)


def load_class_names(path: Path, key: str) -> tuple[str, ...]:
    """Return the class names in a meta file. Raises UserError if it has no list of names `key`."""
    found = _content(path).get(key)
    if not isinstance(found, list) or not all(isinstance(name, bytes | str) for name in found):
        raise UserError(f"{path}: `{key}` is missing or not a list of names; download or copy the file again")
    return tuple(map(_text, found))


def _text(value: bytes | str) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def _content(path: Path) -> dict[str, Any]:
    """Return the dictionary of a file, with keys as text. Raises UserError if it is not a CIFAR pickle."""
    if (size := path.stat().st_size) > MAX_FILE_BYTES:
        raise UserError(
            f"{path}: {size:,} bytes is too large for a CIFAR file; check data.dataset and data.source"
        )
    try:
        # The official files were written by Python 2, whose str can hold any bytes.
        content = _Unpickler(io.BytesIO(path.read_bytes()), encoding="bytes").load()
        return {_text(key): value for key, value in content.items()}
    except DAMAGED as error:
        raise UserError(
            f"{path}: not a CIFAR file ({str(error) or 'truncated'}); download or copy it again"
        ) from error
