"""Whether two trainings of one experiment came to the same, bit for bit."""

import json
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any

from torch import Tensor

from nnlo_lib.checkpoint import part as parts
from nnlo_lib.checkpoint.manifest import Manifest
from nnlo_lib.checkpoint.part import Part
from nnlo_lib.checkpoint.publisher import folder_name, numbers

TIMINGS = ("seconds", "samples_per_second", "bytes")  # bytes: a resume repeats the start's broadcast
POSITION = ("epoch", "index", "steps", "samples")


def differences(ours: Path, reference: Path) -> list[str]:
    """Name what differs between two finished trainings, timings aside: weights, tables, every rank's last state."""
    return [*_in_results(ours, reference), *_in_states(_last(ours), _last(reference))]


def _in_results(ours: Path, reference: Path) -> Iterator[str]:
    for name in ("model.safetensors", "nodes.csv"):
        if _bytes(ours / name) != _bytes(reference / name):
            yield name
    for epoch, (row, other) in enumerate(zip_longest(_history(ours), _history(reference)), 1):
        if row != other:
            yield f"history of epoch {epoch}"
    if _histograms(ours) != _histograms(reference):
        yield "histograms in summary.json"


def _in_states(ours: list[Part], reference: list[Part]) -> Iterator[str]:
    for rank, (part, other) in enumerate(zip_longest(ours, reference)):
        if part is None or other is None:
            yield f"state of rank {rank}, which only one of them has"
            continue
        yield from (
            f"{name} of rank {rank}" for name in POSITION if part.progress[name] != other.progress[name]
        )
        yield from (f"{name} of rank {rank}" for name in _differing(part.tensors, other.tensors))


def _differing(ours: dict[str, Tensor], reference: dict[str, Tensor]) -> Iterator[str]:
    for name in sorted(ours.keys() | reference.keys()):
        if name not in ours or name not in reference or _bits(ours[name]) != _bits(reference[name]):
            yield name


def _bits(tensor: Tensor) -> tuple[Any, ...]:
    return tensor.dtype, tensor.shape, tensor.numpy().tobytes()


def _last(job: Path) -> list[Part]:
    """Read all ranks' parts of the newest checkpoint."""
    checkpoints = job / "state" / "checkpoints"
    folder = checkpoints / folder_name(numbers(checkpoints)[-1])
    return [parts.read(folder, rank) for rank in range(Manifest.read(folder).ranks)]


def _history(job: Path) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in (job / "state" / "history.jsonl").read_text().splitlines()]
    return [{key: value for key, value in row.items() if key not in TIMINGS} for row in rows]


def _histograms(job: Path) -> Any:
    return json.loads((job / "summary.json").read_text())["histograms"]


def _bytes(path: Path) -> bytes | None:
    return path.read_bytes() if path.exists() else None
