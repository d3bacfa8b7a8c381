"""The layout of checkpoints that CHECKPOINT_VERSION identifies, pinned in checkpoint_layout.json.

`PYTHONPATH=tests python -m helpers.checkpoint_layout` writes the current layout to that file.
"""

import json
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
from nnlo_lib.train.rank import train_simulated
from nnlo_lib.train.task import prepare_dataset

PINNED = Path(__file__).with_suffix(".json")
CASES = SYNCHRONOUS | SIMULATED_ASYNCHRONOUS


def manifest_keys() -> list[str]:
    """Return the keys of a manifest."""
    return sorted(field.name for field in fields(CheckpointManifest))


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


def main() -> None:
    """Write the layout, one key or case a line."""
    with tempfile.TemporaryDirectory() as name:
        folder, store = Path(name), Path(name, "digits/hdf5")
        prepare_dataset(Run().data, store)
        states = {
            case: state(folder / case.replace(", ", "-"), store / "manifest.json", case) for case in CASES
        }
    layout = {"defaults": dict(defaults(Run, set())), "state": states}
    blocks = [
        f'"{name}": {{\n'
        + ",\n".join(f"{json.dumps(key)}: {json.dumps(block[key])}" for key in sorted(block))
        + "\n}"
        for name, block in layout.items()
    ]
    head = f'"version": {CHECKPOINT_VERSION},\n"manifest": {json.dumps(manifest_keys())}'
    PINNED.write_text("{\n" + ",\n".join([head, *blocks]) + "\n}\n")


if __name__ == "__main__":
    main()
