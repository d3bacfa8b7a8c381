"""The layout of checkpoints that CHECKPOINT_VERSION identifies, pinned in checkpoint_layout.json.

`PYTHONPATH=tests python -m helpers.checkpoint_layout` writes the current layout to that file.
"""

import json
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

from pydantic_core import to_jsonable_python
from safetensors import safe_open

from helpers.algorithm_trainings import SIMULATED_ASYNCHRONOUS, SYNCHRONOUS, task
from helpers.training_process import StopAfter
from nnlo_lib.checkpoint.checkpoint_manifest import CHECKPOINT_VERSION, CheckpointManifest
from nnlo_lib.config import Run
from nnlo_lib.config.base import ConfigModel, block_types, default, non_defaults
from nnlo_lib.train.prepare_dataset import prepare_dataset
from nnlo_lib.train.rank import train_simulated

PINNED = Path(__file__).with_suffix(".json")
CASES = SYNCHRONOUS | SIMULATED_ASYNCHRONOUS
GONE = object()
Layout = dict[str, Any]


def layout(folder: Path, manifest: Path) -> Layout:
    """Return the keys that checkpoints contain and the defaults of the configuration."""
    return {
        "version": CHECKPOINT_VERSION,
        "manifest": sorted(field.name for field in fields(CheckpointManifest)),
        "defaults": dict(defaults(Run, set())),
        "state": {case: state(folder / case.replace(", ", "-"), manifest, case) for case in CASES},
    }


def defaults(block: type[ConfigModel], seen: set[type[ConfigModel]]) -> Iterator[tuple[str, Any]]:
    """Yield every key of the configuration with its default."""
    seen.add(block)
    for key, field in block.model_fields.items():
        if not field.is_required():
            yield f"{block.__name__}.{key}", to_jsonable_python(non_defaults(default(block, key)))
        for inner in set(block_types(field.annotation)) - seen:
            yield from defaults(inner, seen)


def state(folder: Path, manifest: Path, case: str) -> list[str]:
    """Return the names of the tensors and progress fields that the ranks of a case save."""
    train_simulated(task(folder, manifest, case, CASES[case]), StopAfter(1))
    names: set[str] = set()
    for path in sorted((folder / "state/checkpoints").glob("*/*.safetensors")):
        with safe_open(path, "pt") as file:
            names |= {*file.keys(), *(f"progress.{name}" for name in json.loads(file.metadata()["progress"]))}
    return sorted(names)


def broken(old: Layout, new: Layout) -> list[str]:
    """Return the entries of the old layout that the new layout changes or lacks; additions are compatible."""
    changed = [f"state of {case}" for case in old["state"] if new["state"].get(case) != old["state"][case]]
    changed += [key for key in old["defaults"] if new["defaults"].get(key, GONE) != old["defaults"][key]]
    return changed + ["manifest"] * (old["manifest"] != new["manifest"])


def main() -> None:
    """Write the layout; exit with an error if it changed without a new CHECKPOINT_VERSION."""
    with tempfile.TemporaryDirectory() as name:
        store = Path(name, "digits/hdf5")
        prepare_dataset(Run().data, store)
        new = layout(Path(name), store / "manifest.json")
    old = json.loads(PINNED.read_text()) if PINNED.exists() else new
    if (changed := broken(old, new)) and old["version"] == CHECKPOINT_VERSION:
        sys.exit(
            f"raise CHECKPOINT_VERSION in nnlo_lib/checkpoint/checkpoint_manifest.py first: {', '.join(changed)} changed"
        )
    PINNED.write_text(json.dumps(new, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
