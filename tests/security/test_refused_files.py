"""The rows of docs/reference/security.md: a hostile file of each type runs no code and leaves its folder alone."""

import struct
import tarfile

import pytest
from helpers.hostile_files import (
    archive_in_tar,
    exported_program,
    hdf5,
    keras_layer,
    lambda_layer,
    object_array,
    pickled,
    png,
    saved,
    text,
    torchscript,
    virtual,
    zip_of,
)
from helpers.hostile_readers import network, rows, unpacked

from nnlo_lib.core.errors import UserError
from nnlo_lib.data.readers.cifar_pickle import load_batch
from nnlo_lib.data.readers.image import ImageError, decode
from nnlo_lib.experiment.load import load_experiment
from nnlo_lib.models.weights import read_weights
from nnlo_lib.state.published_file import read_arrays, read_json_object

# file: (writer, reader, text of the error)
REFUSED = {
    "exported program": ("net.pt2", exported_program, network, "contains pickles, which can run any code"),
    "TorchScript": ("net.pt", torchscript, network, "which can overwrite files"),
    "pickled network": ("net.pt", saved, lambda path: network(path, trust=True), "pickled network"),
    "weights with a pickle": ("w.pt", saved, lambda path: read_weights(str(path)), "contains code that would run"),
    "weights with a long header": (
        "w.safetensors", text(struct.pack("<Q", 1 << 60) + b"{}"), lambda path: read_weights(str(path)), "cannot be read"
    ),
    "Lambda layer": ("net.json", lambda path, mark: path.write_text(lambda_layer()), network, "Lambda"),
    "Keras JSON of another module": (
        "net.json", text(keras_layer("os", "mkdir", "{mark}")), network, "Expected 'config' to be a dict"
    ),
    "Keras JSON of another module with arguments": (
        "net.json", text(keras_layer("os", "mkdir", {"path": "{mark}"})), network, "Could not locate class 'mkdir'|no class mkdir"
    ),
    "Keras JSON of a function": (
        "net.json", text(keras_layer("keras.utils", "get_file", {"origin": "file://{mark}"})), network, "Cannot deserialize|Could not locate"
    ),
    "nested JSON": (
        "r.json", text("[" * 100_000), lambda path: read_json_object(path, ()), "nested too deeply"
    ),
    "NPZ of objects": ("x.npz", object_array, read_arrays, "damaged"),
    "HDF5 with external storage": (
        "x.h5", hdf5(lambda file, secret: file.create_dataset("x", (30,), "u1", external=[(str(secret), 0, 30)])),
        rows, "external storage",
    ),
    "HDF5 with a virtual dataset": ("x.h5", hdf5(virtual), rows, "virtual dataset"),
    "CIFAR pickle": ("data_batch_1", pickled, lambda path: load_batch(path, "labels"), "the file refers to"),
    "tar with a path above": ("x.tar", archive_in_tar("../mark"), unpacked, "could be outside"),
    "tar with an absolute path": ("x.tar", archive_in_tar("{mark}"), unpacked, "could be outside"),
    "tar with a symbolic link": ("x.tar", archive_in_tar("a", tarfile.SYMTYPE), unpacked, "link or device"),
    "tar with a hard link": ("x.tar", archive_in_tar("a", tarfile.LNKTYPE), unpacked, "link or device"),
    "tar with a device": ("x.tar", archive_in_tar("a", tarfile.CHRTYPE), unpacked, "link or device"),
    "tar with a pipe": ("x.tar", archive_in_tar("a", tarfile.FIFOTYPE), unpacked, "link or device"),
    "zip with a path above": ("x.zip", zip_of("../mark", b"x"), unpacked, "could be outside"),
    "zip bomb": ("x.npz", zip_of("x.npy", bytes(300_000_000)), rows, "x.npz"),
    "image of 4,000,000,000 pixels": (
        "x.png", text(png(65_000, 65_000)), lambda path: decode(path.read_bytes()), "decompression bomb"
    ),
    "image of 66,000,000 pixels": (
        "x.png", text(png(8_125, 8_125)), lambda path: decode(path.read_bytes()), "more than the limit"
    ),
    "YAML of a Python object": (
        "x.yaml", text("name: !!python/object/apply:os.mkdir ['{mark}']"), load_experiment, "could not determine"
    ),
}  # fmt: skip


@pytest.mark.parametrize(("name", "write", "read", "told"), REFUSED.values(), ids=REFUSED)
def test_a_hostile_file_is_refused_and_runs_nothing(tmp_path, name, write, read, told):
    folder, mark = tmp_path / "in", tmp_path / "mark"
    folder.mkdir()
    write(folder / name, mark)
    with pytest.raises((UserError, ImageError), match=told):
        read(folder / name)
    assert not mark.exists()
    assert not (folder / "mark").exists()


@pytest.mark.parametrize("suffix", [".npz", ".npy"])
def test_arrays_of_objects_are_never_unpickled(tmp_path, suffix):
    """The header is readable, so that the reader can name the type; the values raise an error."""
    object_array(tmp_path / f"x{suffix}", tmp_path / "mark")
    with pytest.raises((UserError, ValueError)):
        rows(tmp_path / f"x{suffix}")
    assert not (tmp_path / "mark").exists()
