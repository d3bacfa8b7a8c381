import hashlib
import os
import zipfile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnlo_lib.core.errors import UserError
from nnlo_lib.data.partition.partition_file import check_cover, load_partition, save_partition

HELD = np.array([3, 5])
PARTS = [np.array([0, 4]), np.array([1]), np.array([2, 6])]


def test_comes_back_in_order(tmp_path):
    parts = [np.arange(number, number + 2) for number in range(0, 240, 2)]
    save_partition(tmp_path / "state" / "partition.npz", np.array([], np.int64), parts)
    held, loaded = load_partition(tmp_path / "state" / "partition.npz")
    assert (held.tolist(), held.dtype) == ([], np.int64)
    assert [part.tolist() for part in loaded] == [part.tolist() for part in parts]
    assert {part.dtype for part in loaded} == {np.dtype(np.int64)}


def test_file_is_plain_and_its_bytes_depend_on_the_ids_alone(tmp_path):
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


def test_missing_file(tmp_path):
    with pytest.raises(UserError, match=r"none\.npz: not the partition of a run .*train the run again"):
        load_partition(tmp_path / "none.npz")


def test_every_truncation_is_noticed(tmp_path):
    save_partition(tmp_path / "partition.npz", HELD, PARTS)
    whole = (tmp_path / "partition.npz").read_bytes()
    for length in range(0, len(whole), 7):
        (tmp_path / "partition.npz").write_bytes(whole[:length])
        with pytest.raises(UserError, match="not the partition of a run"):
            load_partition(tmp_path / "partition.npz")


@pytest.mark.long
def test_every_flipped_bit_is_noticed_or_harmless(tmp_path):
    path = tmp_path / "partition.npz"
    save_partition(path, HELD, PARTS)
    whole, noticed = path.read_bytes(), 0
    for at in range(0, len(whole) * 8):
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
    assert noticed > 1000


def test_pickles_are_not_opened(tmp_path):
    np.savez(tmp_path / "partition.npz", validation=np.array([print], dtype=object))
    with pytest.raises(UserError, match="not the partition of a run"):
        load_partition(tmp_path / "partition.npz")


def test_single_array_is_no_partition(tmp_path):
    with (tmp_path / "partition.npz").open("wb") as file:
        np.save(file, HELD)
    with pytest.raises(UserError, match="not the partition of a run"):
        load_partition(tmp_path / "partition.npz")


@given(st.lists(st.integers(0, 5), min_size=1, max_size=60).map(np.array))
def test_any_division_covers(owners):
    held, *parts = (np.flatnonzero(owners == owner) for owner in range(6))
    check_cover(len(owners), held, parts)


@pytest.mark.parametrize(
    ("held", "parts", "message"),
    [
        (HELD, PARTS[1:], "lacks 2 samples, the first is 0"),
        (HELD[:1], PARTS, "lacks 1 samples, the first is 5"),
        (
            HELD,
            [*PARTS, np.array([6, 4])],
            "contains 2 samples more than once, the first is 4 in worker-00000, worker-00003",
        ),
        (
            np.array([3, 5, 1]),
            PARTS,
            "contains 1 samples more than once, the first is 1 in worker-00001, validation",
        ),
        (HELD, [*PARTS, np.array([7])], r"contains sample 7, which is not in 0\.\.6"),
        (HELD, [*PARTS, np.array([-1])], "contains sample -1"),
    ],
)
def test_faults_are_named(held, parts, message):
    check_cover(7, HELD, PARTS)
    with pytest.raises(ValueError, match=message):
        check_cover(7, held, parts)


def test_sample_twice_in_one_part_is_named():
    with pytest.raises(ValueError, match="the first is 0 in worker-00000"):
        check_cover(2, HELD[:0], [np.array([0, 1, 0])])
