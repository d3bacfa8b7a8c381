"""Checkpoints: a folder each, one file per rank, a manifest with checksums, visible only when whole.

state/checkpoints/00000042/rank-0.safetensors   tensors; their header's metadata holds the rank's progress
                           rank-1.safetensors
                           manifest.json        version, key of the run, ranks, sha256 of each file
"""

import hashlib
import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import safe_open
from safetensors.torch import save
from torch import Tensor

from nnlo_lib.comm.communicator import Communicator
from nnlo_lib.data.atomic import replacing
from nnlo_lib.errors import UserError
from nnlo_lib.train.journal import Journal

VERSION = 1
MANIFEST = "manifest.json"


@dataclass(frozen=True)
class Checkpoints:
    """The checkpoints of one training, written and read by all its ranks together.

    key: what a checkpoint must have been written by to be continued (a hash of the run).
    """

    folder: Path
    key: str
    keep: int
    comm: Communicator
    journal: Journal

    def save(self, tensors: dict[str, Tensor], progress: dict[str, Any]) -> None:
        """Write this rank's state; returns when the checkpoint of all ranks is on disk."""
        number = max(self._numbers(), default=0) + 1 if self.comm.rank == 0 else 0
        number = self.comm.gather(number)[0]
        unfinished = self.folder / f"unfinished-{number:08d}"
        unfinished.mkdir(parents=True, exist_ok=True)
        content = save(
            {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()},
            {"progress": json.dumps(progress)},
        )
        name = f"rank-{self.comm.rank}.safetensors"
        with replacing(unfinished / name) as part:
            part.write_bytes(content)
        checksums = dict(self.comm.gather([name, hashlib.sha256(content).hexdigest()]))
        if self.comm.rank == 0:
            self._publish(unfinished, number, checksums)
        self.comm.barrier()

    def _publish(self, unfinished: Path, number: int, checksums: dict[str, str]) -> None:
        manifest = {"version": VERSION, "key": self.key, "ranks": self.comm.size, "sha256": checksums}
        with replacing(unfinished / MANIFEST) as part:
            part.write_text(json.dumps(manifest, indent=1))
        unfinished.rename(self.folder / f"{number:08d}")
        _sync(self.folder)
        for old in self._numbers()[: -self.keep]:
            shutil.rmtree(self.folder / f"{old:08d}")

    def load(self) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """Return this rank's tensors and progress from the newest whole checkpoint, if there is one.

        Raises UserError if the checkpoint was written on another number of ranks.
        """
        newest = self._newest() if self.comm.rank == 0 else None
        newest = self.comm.gather(newest)[0]
        if newest is None:
            return None
        path = self.folder / newest / f"rank-{self.comm.rank}.safetensors"
        with safe_open(path, "pt") as file:
            progress = json.loads(file.metadata()["progress"])
            return {name: file.get_tensor(name) for name in file.keys()}, progress  # noqa: SIM118

    def _newest(self) -> str | None:
        """Find the newest checkpoint that is whole, and clear away what a crash left unfinished."""
        for unfinished in self.folder.glob("unfinished-*"):
            shutil.rmtree(unfinished)
        for number in reversed(self._numbers()):
            folder = self.folder / f"{number:08d}"
            fault = self._fault(folder)
            if fault is None:
                return folder.name
            self.journal.write(f"warning: the checkpoint {folder} is skipped: {fault}")
        return None

    def _fault(self, folder: Path) -> str | None:
        try:
            manifest = json.loads((folder / MANIFEST).read_bytes())
            if manifest["version"] != VERSION:
                return f"its format is version {manifest['version']}, this is nnlo with version {VERSION}"
            for name, checksum in manifest["sha256"].items():
                if hashlib.sha256((folder / name).read_bytes()).hexdigest() != checksum:
                    return f"{name} is damaged"
        except (OSError, ValueError, KeyError) as error:
            return f"{type(error).__name__}: {error}"
        if manifest["key"] != self.key:
            return "the experiment changed since it was written"
        if manifest["ranks"] != self.comm.size:
            raise UserError(
                f"{folder} was written by {manifest['ranks']} ranks and cannot go on with {self.comm.size}; "
                f"use {manifest['ranks']} ranks, or delete {self.folder.parent} to start again"
            )
        return None

    def _numbers(self) -> list[int]:
        return sorted(int(path.name) for path in self.folder.glob("[0-9]" * 8))


def _sync(folder: Path) -> None:
    """Make renames in `folder` survive a power failure."""
    handle = os.open(folder, os.O_RDONLY)
    os.fsync(handle)
    os.close(handle)
