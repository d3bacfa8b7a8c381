"""Reader of a text: windows of bytes, and for each byte the one that follows it."""

import re
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from nnlo_lib import UserError, contents_of_arrays

PYTHON_TEXT = "pydoc_data.topics"  # the language reference, 0.7 MB of English in every installation of Python


def read_windows(folder, shard_size, file=None, tokens=64, size=None, test_fraction=0.1):
    """Return windows of `tokens` bytes; the end of the text is the test split.

    Args:
        folder: data.source, in which `file` is.
        shard_size: maximum number of windows per shard.
        file: name of the text file; None: Python's language reference.
        tokens: bytes of a window.
        size: bytes of the text to use; None: all.
        test_fraction: part of the windows that is tested.
    """
    path = Path(find_spec(PYTHON_TEXT).origin) if file is None else Path(folder) / file
    if not path.is_file():
        raise UserError(f"data.source: {path} not found; put {file} into the folder")
    content = path.read_bytes()
    # The reference is indented, so that half of its bytes would be spaces.
    content = re.sub(rb" +", b" ", content) if file is None else content
    text = np.frombuffer(content[:size], np.uint8).astype(np.int64)
    count = (len(text) - 1) // tokens
    if count < 10:
        raise UserError(f"{path}: {len(text)} bytes are fewer than 10 windows of {tokens}; use a longer text")
    inputs = text[: count * tokens].reshape(count, tokens).astype(np.int32)
    following = text[1 : count * tokens + 1].reshape(count, tokens)
    train = count - max(1, int(count * test_fraction))
    splits = {"train": (inputs[:train], following[:train]), "test": (inputs[train:], following[train:])}
    return contents_of_arrays(splits, path, shard_size)
