"""Writers of hostile files of each type; a file that runs code creates the file or folder `mark`."""

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
import torch
from torch import nn

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
