"""The rows of docs/reference/security.md: a hostile file of each type is refused with a sentence and runs no code."""

import io
import json
import os
import pickle
import stat
import struct
import tarfile
import zipfile
import zlib
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from helpers.nnlo_command import nnlo
from snakemake.common.configfile import load_configfile
from torch import nn

from nnlo_lib.core.errors import UserError
from nnlo_lib.data.fetch.archive import extract
from nnlo_lib.data.readers.array_file import find_arrays
from nnlo_lib.data.readers.cifar import load_batch
from nnlo_lib.data.readers.image import ImageError, decode
from nnlo_lib.experiment.load import load_experiment
from nnlo_lib.models.factory import build_model
from nnlo_lib.models.saved_networks import load_weights, read_weights
from nnlo_lib.mpi_learn import H5Data
from nnlo_lib.state.finished_run import read_arrays, read_json_object


class Evil:
    """Object that creates the folder `mark` when a plain unpickler loads it."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self):
        return os.mkdir, (str(self.mark),)


class Overwriting(nn.Module):
    """Network that overwrites the file `mark` when TorchScript loads it."""

    mark: torch.jit.Final[str]

    def __init__(self, mark: Path) -> None:
        super().__init__()
        self.mark, self.weight = str(mark), torch.ones(4)

    def forward(self, inputs):
        return inputs.flatten(1)[:, :2] * self.weight[:2]

    @torch.jit.export
    def __getstate__(self):
        return (self.weight, self.training)

    @torch.jit.export
    def __setstate__(self, state: tuple[torch.Tensor, bool]):
        torch.save(state[0], self.mark)
        self.weight, self.training = state


def exported_program(path, mark):
    """Write an exported program whose sample inputs are a pickle that creates `mark`."""
    dynamic = ({0: torch.export.Dim.AUTO},)
    program = torch.export.export(nn.Linear(4, 2), (torch.zeros(3, 4),), dynamic_shapes=dynamic)
    torch.export.save(program, good := path.with_name("good.pt2"))
    with zipfile.ZipFile(good) as old, zipfile.ZipFile(path, "w") as new:
        for member in old.namelist():
            content = old.read(member)
            if member.endswith("sample_inputs/model.pt"):
                torch.save(Evil(mark), stream := io.BytesIO())
                content = stream.getvalue()
            new.writestr(member.replace("good/", f"{path.stem}/", 1), content)


def torchscript(path, mark):
    torch.jit.save(torch.jit.script(Overwriting(mark)), path)
    mark.unlink(missing_ok=True)


def network(path, trust=False):
    return build_model(str(path), {}, (4,), 2, 0, trust=trust)


def text(content):
    """Return a writer of bytes, or of a text with the path of the mark in place of MARK."""

    def write(path, mark):
        path.write_bytes(content.replace("MARK", str(mark)).encode() if isinstance(content, str) else content)

    return write


def saved(path, mark):
    torch.save({"weight": Evil(mark)}, path)


def batch(**content):
    """Return a writer of a CIFAR batch in which `content` may be Evil."""

    def write(path, mark):
        good = {"data": np.zeros((2, 3072), np.uint8), "labels": [0, 1]}
        values = {key: each(mark) for key, each in content.items()}
        path.write_bytes(pickle.dumps({k.encode(): v for k, v in (good | values).items()}, protocol=2))

    return write


def objects(path, mark):
    values = np.array([Evil(mark)], object)
    np.save(path, values) if path.suffix == ".npy" else np.savez(path, x=values)


def keras_layer(module, name, config):
    layer = {"module": module, "class_name": name, "config": config, "registered_name": None}
    model = {"module": "keras", "class_name": "Sequential", "registered_name": None}
    return text(json.dumps(model | {"config": {"name": "net", "layers": [layer]}}))


def lambda_layer(path, mark):
    import keras

    model = keras.Sequential([keras.Input((4,)), keras.layers.Lambda(lambda each: each)])
    path.write_text(model.to_json())


def external_storage(name, shape=(30,), kind="u1"):
    """Return a writer of an HDF5 file whose array `name` is stored in a text of the user; other arrays stay."""

    def write(path, mark):
        path.with_name("secret").write_bytes(b"the content of another file of the user")
        with h5py.File(path, "a") as file:
            file.pop(name, None)
            file.create_dataset(name, shape, kind, external=[(str(path.with_name("secret")), 0, 32)])
            file["labels"] = range(30)

    return write


def keras_weights(path, mark):
    import keras

    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    path.with_name("net.json").write_text(model.to_json())
    model.save_weights(path)
    with h5py.File(path) as file:
        names = []
        file.visititems(
            lambda name, item: names.append(name) if getattr(item, "shape", 0) == (4, 2) else None
        )
    external_storage(names[0], (4, 2), "f4")(path, mark)


def loaded_weights(path):
    return load_weights(network(path.with_name("net.json")), str(path))


def link_to_text(path, mark):
    """Links to other HDF5 files are a documented feature; links to other files are refused."""
    path.with_name("secret").write_bytes(b"the content of another file of the user")
    with h5py.File(path, "w") as file:
        file["x"] = h5py.ExternalLink(str(path.with_name("secret")), "/x")


def virtual(path, mark):
    with h5py.File(path.with_name("other.h5"), "w") as other:
        other["x"] = np.zeros(4)
    layout = h5py.VirtualLayout((4,), "f8")
    layout[:] = h5py.VirtualSource(str(path.with_name("other.h5")), "x", (4,))
    with h5py.File(path, "w") as file:
        file.create_virtual_dataset("x", layout)


def rows(path):
    return [array.rows(0, 1) for array in find_arrays(path, "x")]


def member(name, kind=tarfile.REGTYPE):
    """Return a writer of an archive of a harmless file and one with this name and kind."""

    def write(path, mark):
        info = tarfile.TarInfo(name.replace("MARK", str(mark)))
        if path.suffix == ".zip":
            entry = zipfile.ZipInfo(info.name)
            entry.external_attr = (stat.S_IFLNK | 0o777) << 16 if kind == tarfile.SYMTYPE else 0
            with zipfile.ZipFile(path, "w") as archive:
                archive.writestr("fine", b"1")
                archive.writestr(entry, str(mark))
            return
        info.type, info.linkname, info.size = kind, str(mark), int(kind == tarfile.REGTYPE)
        with tarfile.open(path, "w:gz") as archive:
            archive.addfile(tarfile.TarInfo("fine"))
            archive.addfile(info, io.BytesIO(b"x"))

    return write


def bomb(path, mark):
    """Write ten million zeros with a declared size of ten bytes."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("bomb", bytes(10_000_000))
    size, content = (10_000_000).to_bytes(4, "little"), path.read_bytes()
    assert content.count(size) == 2
    path.write_bytes(content.replace(size, (10).to_bytes(4, "little")))


def unpacked(path):
    return extract(path, path.parent / "target")


def png(width, height):
    def chunk(kind, content):
        return (
            struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
        )

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")


def image(path):
    return decode(path.read_bytes())


def of_mpi_learn(path):
    try:
        return H5Data().load_data(str(path))
    except ValueError as error:
        raise UserError(str(error)) from error


def weights(path):
    return read_weights(str(path))


OUTSIDE, LINK = "could be outside the target folder", "is a link or device"
# file: (name, writer, reader, text of the error)
REFUSED = {
    "pickled network": ("net.pt", saved, lambda path: network(path, trust=True), "pickled network"),
    "weights with a pickle": ("w.pt", saved, weights, "contains code that would run"),
    "weights with a long header": ("w.safetensors", text(struct.pack("<Q", 1 << 60) + b"{}"), weights, "cannot be read"),
    "Lambda layer": ("net.json", lambda_layer, network, "Lambda"),
    "Keras JSON of another module": (
        "net.json", keras_layer("os", "mkdir", "MARK"), network, "Expected 'config' to be a dict"),
    "Keras JSON of another module with arguments": (
        "net.json", keras_layer("os", "mkdir", {"path": "MARK"}), network, "Could not locate class 'mkdir'|no class mkdir"),
    "Keras JSON of a function": (
        "net.json", keras_layer("keras.utils", "get_file", {"origin": "file://MARK"}), network,
        "Cannot deserialize|Could not locate"),
    "nested JSON": ("r.json", text("[" * 100_000), lambda path: read_json_object(path, ()), "nested too deeply"),
    "NPZ of objects": ("x.npz", objects, read_arrays, "damaged"),
    "NPZ of objects as samples": ("x.npz", objects, rows, r"x\.npz: cannot be read"),
    "NPY of objects as samples": ("x.npy", objects, rows, r"x\.npy: cannot be read"),
    "HDF5 with external storage": ("x.h5", external_storage("x"), rows, "external storage"),
    "HDF5 with external storage, for mpi_learn": ("x.h5", external_storage("features"), of_mpi_learn, "external storage"),
    "HDF5 with external storage in a group, for mpi_learn": ("x.h5", external_storage("features/x"), of_mpi_learn, "external storage"),
    "weights of Keras with external storage": ("w.weights.h5", keras_weights, loaded_weights, "does not fit the model"),
    "HDF5 with a link to a text": ("x.h5", link_to_text, rows, r"x\.h5"),
    "HDF5 with a virtual dataset": ("x.h5", virtual, rows, "virtual dataset, .*: list its source files instead"),
    "CIFAR batch": ("data_batch_1", batch(data=Evil), lambda path: load_batch(path, "labels"), "the file refers to"),
    "CIFAR label": (
        "data_batch_1", batch(labels=lambda mark: [Evil(mark)]), lambda path: load_batch(path, "labels"), "the file refers to"),
    **{f"{suffix} with the path {name}": (f"x.{suffix}", member(name), unpacked, OUTSIDE)
       for name in ("../mark", "MARK", "a/../../mark", "C:/mark", "..\\mark") for suffix in ("zip", "tar.gz")},
    "zip with a symbolic link": ("x.zip", member("a", tarfile.SYMTYPE), unpacked, LINK),
    **{f"tar with a {kind}": ("x.tar.gz", member("a", code), unpacked, LINK) for kind, code in (
        ("symbolic link", tarfile.SYMTYPE), ("hard link", tarfile.LNKTYPE), ("device", tarfile.CHRTYPE),
        ("pipe", tarfile.FIFOTYPE))},
    "zip bomb": ("x.zip", bomb, unpacked, r"x\.zip"),
    "image of 4,000,000,000 pixels": ("x.png", text(png(65_000, 65_000)), image, "decompression bomb"),
    "image of 66,000,000 pixels": ("x.png", text(png(8_125, 8_125)), image, "more than the limit"),
    "YAML of a Python object": (
        "x.yaml", text("name: !!python/object/apply:os.mkdir ['MARK']"), load_experiment, "could not determine"),
}  # fmt: skip


@pytest.mark.parametrize(("name", "write", "read", "reason"), REFUSED.values(), ids=REFUSED)
def test_a_hostile_file_is_refused_and_runs_nothing(tmp_path, name, write, read, reason):
    folder, mark = tmp_path / "in", tmp_path / "mark"
    folder.mkdir()
    write(folder / name, mark)
    before = sorted(folder.iterdir())
    with pytest.raises((UserError, ImageError), match=reason):
        read(folder / name)
    assert not mark.exists()
    assert sorted(folder.iterdir()) == before


@pytest.mark.parametrize(
    ("name", "write", "reason"),
    [
        ("net.pt2", exported_program, "contains pickles, which can run any code"),
        ("net.pt", torchscript, "which can overwrite files"),
    ],
)
def test_the_code_of_a_saved_network_runs_only_if_the_user_trusts_it(tmp_path, name, write, reason):
    """The last line fails if a newer torch makes the hostile file harmless."""
    mark = tmp_path / "mark"
    write(tmp_path / name, mark)
    (tmp_path / "x.yaml").write_text(f"model: {{name: {name}}}")
    with pytest.raises(UserError, match=reason):
        network(tmp_path / name)
    shown, checked = (nnlo(command, "x.yaml", folder=tmp_path) for command in ("model", "check"))
    assert (shown.returncode, checked.returncode, mark.exists()) == (2, 2, False)
    assert f"{name} was not read" in shown.stderr
    assert "set model.trust: true (`nnlo model`: --trust)" in shown.stderr
    assert f"x.yaml:1: model.name: {name} was not read" in checked.stderr
    nnlo("model", "x.yaml", "--trust", folder=tmp_path)
    assert mark.exists()


def test_snakemake_runs_code_in_a_configuration_file_that_nnlo_refuses(tmp_path):
    """Snakemake reads the file before NNLO, with the template engine YTE."""
    mark, file = tmp_path / "mark", tmp_path / "x.yaml"
    file.write_text(f"__use_yte__: true\nname: ?__import__('os').mkdir({str(mark)!r}) or 'x'\n")
    with pytest.raises(UserError, match=r"x\.yaml:1: __use_yte__: unknown key"):
        load_experiment(file)
    assert not mark.exists()
    load_configfile(file)
    assert mark.exists()
