"""Files that people give as arrays and that are others: the error says what they are, and never to copy them again."""

import pickle

import h5py
import numpy as np
import pytest

from nnlo_lib.core.errors import UserError
from nnlo_lib.data.readers.arrays import read

LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"
FILES = {
    "pointer.h5": (LFS, "a pointer of Git LFS.*git lfs pull"),
    "pointer.mat": (LFS, "a pointer of Git LFS"),
    "login.npz": (b"\xef\xbb\xbf\n<!DOCTYPE html><html>Sign in", "a web page"),
    "old.mat": (b"MATLAB 5.0 MAT-file, Platform: GLNXA64" + bytes(90), "a MATLAB file before version 7.3.*-v7.3"),
    "arrays.npz": (pickle.dumps({"x": 1}, protocol=4), "a pickle.*numpy.savez"),
    "old.hdf5": (pickle.dumps({"x": 1}, protocol=2), "a pickle"),
    "table.parquet": (b"PAR1\x15\x04", "a Parquet file"),
    "events.root": (b"root\x00\x00\xf6\x24", "a ROOT file.*name: table"),
    "x.npz": (b"\x1f\x8b\x08\x00", "compressed by gzip.*gunzip"),
    "x.h5": (b"\x28\xb5\x2f\xfd", "compressed by Zstandard"),
}  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_a_file_of_another_format_is_named(tmp_path, name):
    content, message = FILES[name]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=f"{name}: {message}") as error:
        read(tmp_path, 10, train=name, features="x", labels="y")
    assert "again" not in str(error.value)


def test_a_list_of_files_may_begin_like_another_format(tmp_path):
    np.savez(tmp_path / "root_part.npz", x=np.zeros((4, 2), "f4"), y=[0, 1, 0, 1])
    (tmp_path / "train.txt").write_text("root_part.npz\n")
    assert read(tmp_path, 10, train="train.txt", features="x", labels="y").classes == 2


def test_transposed_arrays_of_matlab_are_told_by_their_shapes(tmp_path):
    with h5py.File(tmp_path / "a.mat", "w", userblock_size=512) as file:
        file["X"], file["y"] = np.zeros((8, 8, 60)), np.zeros((1, 60))
    message = r"X \(8, 8, 60\), y \(1, 60\)\); their last axis is equal, as in files of MATLAB"
    with pytest.raises(UserError, match=message):
        read(tmp_path, 10, train="a.mat", features="X", labels="y")  # fmt: skip


def test_the_fields_of_a_compound_type_are_named(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["events"] = np.zeros(6, [("pt", "f4"), ("label", "i4")])
        file["label"] = np.zeros(6, "i4")
    with pytest.raises(UserError, match=r"found: events with the fields pt, label, label"):
        read(tmp_path, 10, train="a.h5", features="pt", labels="label")
    with pytest.raises(UserError, match="write each of its fields as an array"):
        read(tmp_path, 10, train="a.h5", features="events", labels="label")
