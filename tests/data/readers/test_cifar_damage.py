"""Damaged CIFAR files: a sentence with the path, or values that no check can tell from right ones."""

import pickle
import tracemalloc

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from nnlo_lib.core.errors import UserError
from nnlo_lib.data.readers import read
from nnlo_lib.data.readers.cifar_pickle import load_batch

SAMPLES = 3
PIXELS = np.arange(SAMPLES * 3072, dtype=np.uint32).astype(np.uint8).reshape(SAMPLES, 3072)
LABELS = [3, 1, 4]
CONTENT = {b"data": PIXELS, b"labels": LABELS, b"filenames": [b"a.png"] * SAMPLES}
PICKLES = {protocol: pickle.dumps(CONTENT, protocol=protocol) for protocol in (2, 3, 4)}
FORTRAN = PICKLES[3].index(b"\x89B\x00\x24")  # the flag of the order of the pixels


def flipped(content, at, bit):
    changed = bytearray(content)
    changed[at] ^= 1 << bit
    return bytes(changed)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return tmp_path_factory.mktemp("cifar") / "data_batch_1"


def load(path, content):
    """Return pixels and labels, or None if the file was refused, which may take no more than 5 MB."""
    path.write_bytes(content)
    tracemalloc.start()
    try:
        return load_batch(path, "labels")
    except UserError as error:
        return None if str(path) in str(error) else error
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 5_000_000


@settings(max_examples=300, deadline=None)
@given(
    protocol=st.sampled_from(list(PICKLES)),
    distance=st.integers(0, 400),
    end=st.booleans(),
    bit=st.integers(0, 7),
)
@example(protocol=3, distance=FORTRAN, end=False, bit=0)
def test_a_flipped_bit_of_a_pickle_changes_at_most_one_value(path, protocol, distance, end, bit):
    """The places near both ends are the structure; a flipped bit of a value cannot be noticed."""
    content = PICKLES[protocol]
    found = load(path, flipped(content, len(content) - 1 - distance if end else distance, bit))
    if found is not None:
        pixels, labels = found
        assert (pixels.shape, len(labels)) == ((SAMPLES, 3072), SAMPLES)
        assert int((pixels != PIXELS).sum() + (labels != LABELS).sum()) <= 1


@settings(max_examples=60, deadline=None)
@given(protocol=st.sampled_from(list(PICKLES)), at=st.floats(0, 1, exclude_max=True))
def test_a_cut_pickle_is_refused(path, protocol, at):
    content = PICKLES[protocol]
    assert load(path, content[: int(at * len(content))]) is None


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_binary_file_of_another_size_is_refused(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("binary")
    rows = np.column_stack([np.array(LABELS, np.uint8), PIXELS]).tobytes()
    for name in [*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin"]:
        (folder / name).write_bytes(rows)
    length = data.draw(st.integers(0, len(rows) - 1).filter(lambda length: length % 3073 or not length))
    (folder / "data_batch_4.bin").write_bytes(rows[:length])
    with pytest.raises(UserError, match=r"data_batch_4\.bin: the file has .*not a positive multiple"):
        read("cifar", folder, 9, {})
