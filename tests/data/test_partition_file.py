"""The file with the samples of each worker: plain, repeatable, and checked."""

import hashlib
import os
import zipfile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnlo_lib.core.errors import UserError
from nnlo_lib.data.partition import check_cover, load_partition, save_partition

HELD = np.array([3, 5])
PARTS = [np.array([0, 4]), np.array([1]), np.array([2, 6])]


def test_parts_come_back_in_order(tmp_path):
    parts = [np.arange(number, number + 2) for number in range(0, 240, 2)]
    save_partition(tmp_path / "state" / "partition.npz", np.array([], np.int64), parts)
    held, loaded = load_partition(tmp_path / "state" / "partition.npz")
    assert (held.tolist(), held.dtype) == ([], np.int64)
    assert [part.tolist() for part in loaded] == [part.tolist() for part in parts]
    assert {part.dtype for part in loaded} == {np.dtype(np.int64)}


def test_the_file_is_plain_and_its_bytes_depend_on_the_samples_alone(tmp_path):
    hashes = set()
    for name, dtype in (("a.npz", np.int64), ("b.npz", np.int32)):
        save_partition(tmp_path / name, HELD.astype(dtype), [part.astype(dtype) for part in PARTS])
        os.utime(tmp_path / name, (0, 0))
        hashes.add(hashlib.sha256((tmp_path / name).read_bytes()).hexdigest())
    assert len(hashes) == 1
    with zipfile.ZipFile(tmp_path / "a.npz") as archive:
        assert archive.namelist() == [*(f"worker-0000{number}.npy" for number in range(3)), "validation.npy"]
        assert {member.compress_type for member in archive.infolist()} == {zipfile.ZIP_STORED}
        assert {member.date_time for member in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.npz", "b.npz"]


@pytest.mark.parametrize("kind", ["missing", "pickle", "single array"])
def test_another_file_is_no_partition(tmp_path, kind):
    path = tmp_path / "partition.npz"
    if kind == "pickle":
        np.savez(path, validation=np.array([print], dtype=object))
    elif kind == "single array":
        with path.open("wb") as file:
            np.save(file, HELD)
    with pytest.raises(UserError, match=r"partition\.npz: not the partition of a run .*train the run again"):
        load_partition(path)


@pytest.mark.parametrize("step", [11, pytest.param(1, marks=pytest.mark.exhaustive)])
def test_a_cut_or_a_flipped_bit_is_noticed_or_harmless(tmp_path, step):
    path = tmp_path / "partition.npz"
    save_partition(path, HELD, PARTS)
    whole, noticed = path.read_bytes(), 0
    for length in range(0, len(whole), 7):
        path.write_bytes(whole[:length])
        with pytest.raises(UserError, match="not the partition of a run"):
            load_partition(path)
    for at in range(0, len(whole) * 8, step):
        damaged = bytearray(whole)
        damaged[at // 8] ^= 1 << at % 8
        path.write_bytes(damaged)
        try:
            held, parts = load_partition(path)
        except UserError:
            noticed += 1
        else:
            assert held.tolist() == HELD.tolist()
            assert [part.tolist() for part in parts] == [part.tolist() for part in PARTS]
    assert noticed > 1000 / step


@given(st.lists(st.integers(0, 5), min_size=1, max_size=60).map(np.array))
def test_any_division_covers(owners):
    held, *parts = (np.flatnonzero(owners == owner) for owner in range(6))
    check_cover(len(owners), held, parts)


TWICE = "contains {} samples more than once, the first is"


@pytest.mark.parametrize(
    ("held", "parts", "message"),
    [
        (HELD, PARTS[1:], "lacks 2 samples, the first is 0"),
        (HELD[:1], PARTS, "lacks 1 samples, the first is 5"),
        (HELD, [*PARTS, np.array([6, 4])], f"{TWICE.format(2)} 4 in worker-00000, worker-00003"),
        (np.array([3, 5, 1]), PARTS, f"{TWICE.format(1)} 1 in worker-00001, validation"),
        (HELD, [np.array([0, 4, 0]), *PARTS[1:]], f"{TWICE.format(1)} 0 in worker-00000"),
        (HELD, [*PARTS, np.array([7])], r"contains sample 7, which is not in 0\.\.6"),
        (HELD, [*PARTS, np.array([-1])], "contains sample -1"),
    ],
)
def test_samples_that_are_missing_or_twice_are_named(held, parts, message):
    check_cover(7, HELD, PARTS)
    with pytest.raises(ValueError, match=message):
        check_cover(7, held, parts)
