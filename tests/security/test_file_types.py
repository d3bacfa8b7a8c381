"""The rows of docs/reference/security.md: a hostile file of each type runs no code and leaves its folder alone."""

import contextlib
import io
import json
import os
import pickle
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from helpers.nnlo_command import nnlo
from snakemake.common.configfile import load_configfile
from torch import nn

from nnlo_lib.config.model import ModelConfig
from nnlo_lib.core.errors import UserError
from nnlo_lib.data.fetch.archive import extract
from nnlo_lib.data.readers.array_file import find_arrays
from nnlo_lib.data.readers.cifar_pickle import load_batch
from nnlo_lib.data.readers.image import ImageError, decode
from nnlo_lib.experiment.load import load_experiment
from nnlo_lib.models.factory import build_model
from nnlo_lib.models.weights import load_weights, read_weights
from nnlo_lib.mpi_learn import H5Data
from nnlo_lib.state.published_file import read_arrays, read_json_object

SECRET = b"the content of another file of the user"


class Evil:
    """Object that creates the file `mark` when a plain unpickler loads it."""

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


def exported_program(path: Path, mark: Path) -> None:
    """Write an exported program whose sample inputs are a pickle that creates `mark`."""
    dynamic = ({0: torch.export.Dim.AUTO},)
    program = torch.export.export(nn.Linear(4, 2), (torch.zeros(3, 4),), dynamic_shapes=dynamic)
    good = path.with_name("good.pt2")
    torch.export.save(program, good)
    with zipfile.ZipFile(good) as old, zipfile.ZipFile(path, "w") as new:
        for member in old.namelist():
            content = old.read(member)
            if member.endswith("sample_inputs/model.pt"):
                torch.save(Evil(mark), stream := io.BytesIO())
                content = stream.getvalue()
            new.writestr(member.replace("good/", f"{path.stem}/", 1), content)
    good.unlink()


def torchscript(path: Path, mark: Path) -> None:
    torch.jit.save(torch.jit.script(Overwriting(mark)), path)
    mark.unlink(missing_ok=True)


def hdf5(write: Callable[[h5py.File, Path], object]) -> Callable[[Path, Path], None]:
    """Return a writer of a file with a secret beside it."""

    def written(path: Path, mark: Path) -> None:
        (path.parent / "secret").write_bytes(SECRET)
        with h5py.File(path, "w") as file:
            write(file, path.parent / "secret")

    return written


def virtual(file: h5py.File, secret: Path) -> None:
    with h5py.File(secret.with_name("other.h5"), "w") as other:
        other["x"] = np.zeros(4)
    layout = h5py.VirtualLayout((4,), "f8")
    layout[:] = h5py.VirtualSource(str(secret.with_name("other.h5")), "x", (4,))
    file.create_virtual_dataset("x", layout)


def archive_in_tar(name: str, kind: bytes = tarfile.REGTYPE) -> Callable[[Path, Path], None]:
    def written(path: Path, mark: Path) -> None:
        info = tarfile.TarInfo(name.format(mark=mark))
        info.type, info.linkname, info.size = kind, str(mark), 1 if kind == tarfile.REGTYPE else 0
        with tarfile.open(path, "w") as archive:
            archive.addfile(info, io.BytesIO(b"x"))

    return written


def zip_of(name: str, content: bytes) -> Callable[[Path, Path], None]:
    def written(path: Path, mark: Path) -> None:
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(name.format(mark=mark), content)

    return written


def png(width: int, height: int) -> bytes:
    def chunk(kind: bytes, content: bytes) -> bytes:
        checksum = struct.pack(">I", zlib.crc32(kind + content))
        return struct.pack(">I", len(content)) + kind + content + checksum

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(b""))
        + chunk(b"IEND", b"")
    )


def keras_layer(module: str, name: str, config: object) -> str:
    layer = {"module": module, "class_name": name, "config": config, "registered_name": None}
    return json.dumps(
        {
            "module": "keras",
            "class_name": "Sequential",
            "config": {"name": "net", "layers": [layer]},
            "registered_name": None,
        }
    )


def lambda_layer() -> str:
    import keras

    return keras.Sequential([keras.Input((4,)), keras.layers.Lambda(lambda each: each)]).to_json()


def network(path: Path, trust: bool = False) -> nn.Module:
    return build_model(str(path), {}, (4,), 2, 0, trust=trust)


def text(content: str | bytes) -> Callable[[Path, Path], object]:
    return lambda path, mark: path.write_bytes(
        (content.replace("{mark}", str(mark))).encode() if isinstance(content, str) else content
    )


def pickled(path: Path, mark: Path) -> None:
    path.write_bytes(pickle.dumps({b"data": Evil(mark), b"labels": [0]}, protocol=2))


def saved(path: Path, mark: Path) -> None:
    torch.save({"weight": Evil(mark)}, path)


def object_array(path: Path, mark: Path) -> None:
    values = np.array([Evil(mark)], object)
    np.save(path, values) if path.suffix == ".npy" else np.savez(path, x=values)


def rows(path: Path) -> object:
    return [array.rows(0, 1) for array in find_arrays(path, "x")]


def unpacked(path: Path) -> object:
    return extract(path, path.parent / "target")


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
        "net.json", text(keras_layer("os", "mkdir", "{mark}")), network, "could not be deserialized"
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


@pytest.mark.parametrize(("name", "write"), [("net.pt2", exported_program), ("net.pt", torchscript)])
def test_the_code_of_a_trusted_network_runs(tmp_path, name, write):
    """Without this, the tests above would not notice that a newer torch makes the hostile files harmless."""
    write(tmp_path / name, tmp_path / "mark")
    with pytest.raises(UserError):
        network(tmp_path / name)
    assert not (tmp_path / "mark").exists()
    with contextlib.suppress(UserError):  # the sample inputs are not what torch expects
        network(tmp_path / name, trust=True)
    assert (tmp_path / "mark").exists()


@pytest.mark.parametrize(("name", "write"), [("net.pt2", exported_program), ("net.pt", torchscript)])
def test_nnlo_model_runs_the_code_of_a_network_only_if_told(tmp_path, name, write):
    write(tmp_path / name, tmp_path / "mark")
    (tmp_path / "x.yaml").write_text(f"model: {{name: {name}}}")
    done = nnlo("model", "x.yaml", folder=tmp_path)
    assert done.returncode == 2
    assert f"{name} was not read" in done.stderr
    assert "set model.trust: true (`nnlo model`: --trust)" in done.stderr
    assert not (tmp_path / "mark").exists()
    checked = nnlo("check", "x.yaml", folder=tmp_path)
    assert checked.returncode == 2
    assert f"x.yaml:1: model.name: {name} was not read" in checked.stderr
    assert not (tmp_path / "mark").exists()
    nnlo("model", "x.yaml", "--trust", folder=tmp_path)
    assert (tmp_path / "mark").exists()


def test_snakemake_runs_code_in_a_configuration_file_that_nnlo_refuses(tmp_path):
    """Snakemake reads the file before NNLO, with the template engine YTE."""
    mark = tmp_path / "mark"
    (tmp_path / "x.yaml").write_text(
        f"__use_yte__: true\nname: ?__import__('os').mkdir({str(mark)!r}) or 'x'\n"
    )
    with pytest.raises(UserError, match=r"x\.yaml:1: __use_yte__: unknown key"):
        load_experiment(tmp_path / "x.yaml")
    assert not mark.exists()
    load_configfile(tmp_path / "x.yaml")
    assert mark.exists()


def test_a_link_of_an_hdf5_file_reads_only_hdf5(tmp_path):
    """Links to other HDF5 files are a documented feature; links to other files are refused."""
    (tmp_path / "secret").write_bytes(SECRET)
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["x"] = h5py.ExternalLink(str(tmp_path / "secret"), "/x")
    with pytest.raises(UserError, match=r"x\.h5"):
        rows(tmp_path / "x.h5")


def test_keras_weights_with_external_storage_are_refused(tmp_path):
    import keras

    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    (tmp_path / "net.json").write_text(model.to_json())
    (tmp_path / "secret").write_bytes(bytes(32))
    model.save_weights(path := tmp_path / "w.weights.h5")
    with h5py.File(path, "a") as file:
        name = next(name for name in datasets(file) if file[name].shape == (4, 2))
        del file[name]
        file.create_dataset(name, (4, 2), "f4", external=[(str(tmp_path / "secret"), 0, 32)])
    with pytest.raises(UserError, match="does not fit the model"):
        load_weights(network(tmp_path / "net.json"), str(path))


def datasets(file: h5py.File) -> list[str]:
    names: list[str] = []
    file.visititems(lambda name, item: names.append(name) if isinstance(item, h5py.Dataset) else None)
    return names


def test_no_network_is_trusted_by_default():
    assert not ModelConfig().trust


@pytest.mark.parametrize("name", ["features", "features/x"])
def test_mpi_learn_refuses_external_storage(tmp_path, name):
    (tmp_path / "secret").write_bytes(b"0" * 30)
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset(name, (30,), "u1", external=[(str(tmp_path / "secret"), 0, 30)])
        file["labels"] = range(30)
    with pytest.raises(ValueError, match="external storage"):
        H5Data().load_data(str(tmp_path / "x.h5"))
