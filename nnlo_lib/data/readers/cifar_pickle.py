"""Safe reader for the pickles of CIFAR's python layout; it creates only arrays and built-in values."""

import io
import pickle
import pickletools
from pathlib import Path
from typing import Any

import numpy as np

from nnlo_lib.core.errors import UserError
from nnlo_lib.data.readers import Array, Labels

PIXELS = 3 * 32 * 32
MAX_FILE_BYTES = 1 << 30  # the official files have at most 154 million bytes
DAMAGED = (pickle.UnpicklingError, EOFError, ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError, MemoryError, UnicodeError)  # fmt: skip


class _Ndarray:
    """Stand-in for numpy.ndarray during unpickling: checks the array's state before it allocates memory."""

    array: Array = np.empty(0, np.uint8)  # kept if the pickle sets no state

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, dtype, fortran, data = state
        # Python integers, because a product of int64 could overflow to the size of the data.
        wanted = int(np.prod(shape, dtype=object))
        if not isinstance(data, bytes) or dtype != np.dtype(np.uint8) or len(data) != wanted:
            raise pickle.UnpicklingError("an array is not of type uint8 or does not have the declared size")
        # The official files are in C order; one wrong bit here would mix the pixels of all images.
        if fortran:
            raise pickle.UnpicklingError("an array is in Fortran order instead of C order")
        self.array = np.frombuffer(data, np.uint8).reshape(shape)


def _dtype(name: object, *_: object) -> "_Dtype":
    if name not in ("u1", b"u1"):
        raise pickle.UnpicklingError(f"an array has the type {name!r} instead of 'u1'")
    return _Dtype()


class _Dtype:
    """Stand-in for numpy.dtype('u1') during unpickling."""

    def __setstate__(self, _: object) -> None:
        """Ignore the state: it holds the byte order, which single bytes do not have."""

    def __eq__(self, other: object) -> bool:
        return bool(other == np.dtype(np.uint8))

    __hash__ = None  # type: ignore[assignment]


def _encode(text: str, encoding: str) -> bytes:
    """Stand-in for codecs.encode: Python 3 writes bytes in protocol 2 as codecs.encode(text, 'latin1')."""
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"a text has the encoding {encoding!r} instead of 'latin1'")
    return text.encode("latin1")


ADMITTED = {
    ("numpy.core.multiarray", "_reconstruct"): lambda *_: _Ndarray(),
    # numpy 2 has renamed numpy.core; the official files have the old name.
    ("numpy._core.multiarray", "_reconstruct"): lambda *_: _Ndarray(),
    # Only an argument of _reconstruct, which ignores it here.
    ("numpy", "ndarray"): None,
    ("numpy", "dtype"): _dtype,
    ("_codecs", "encode"): _encode,
}


class _Unpickler(pickle.Unpickler):
    """Unpickler that accepts only the functions and classes in ADMITTED."""

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
    if (
        pixels.ndim != 2
        or pixels.shape[1] != PIXELS
        or not isinstance(labels, list)
        or len(labels) != len(pixels)
    ):
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
    return tuple(_text(name) for name in found)


def _text(value: object) -> str:
    if not isinstance(value, bytes | str):
        raise pickle.UnpicklingError("a name is not text")
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def _check_memo(raw: bytes) -> None:
    """Raise pickle.UnpicklingError if a memo index exceeds the file size.

    For a memo index n, the unpickler would allocate 16 n bytes.
    """
    for opcode, argument, _ in pickletools.genops(raw):
        if opcode.name in ("PUT", "LONG_BINPUT") and (argument or 0) > len(raw):
            raise pickle.UnpicklingError(f"the memo index {argument} exceeds the file size")


def _content(path: Path) -> dict[str, Any]:
    """Return the dictionary of a file, with keys as text. Raises UserError if it is not a CIFAR pickle."""
    if path.stat().st_size > MAX_FILE_BYTES:
        raise UserError(
            f"{path}: {path.stat().st_size:,} bytes is too large for a CIFAR file; check data.dataset and data.source"
        )
    try:
        raw = path.read_bytes()
        _check_memo(raw)
        # The official files were written by Python 2, whose str can hold any bytes.
        content = _Unpickler(io.BytesIO(raw), encoding="bytes").load()
        return {_text(key): value for key, value in content.items()}
    except DAMAGED as error:
        raise UserError(f"{path}: not a CIFAR file ({error}); download or copy it again") from error
