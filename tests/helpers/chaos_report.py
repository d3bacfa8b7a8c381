"""A comparison of two finished trainings bit for bit."""

import json
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any

from torch import Tensor

from nnlo_lib.checkpoint.checkpoint_manifest import (
    CheckpointManifest,
    checkpoint_folder_name,
    checkpoint_numbers,
)
from nnlo_lib.checkpoint.rank_file import RankState, read_rank_file
from nnlo_lib.config.paths import RunPaths
from nnlo_lib.state.finished_run import FinishedRun

TIMING_KEYS = ("seconds", "samples_per_second", "bytes")  # bytes: a resume repeats the initial broadcast
POSITION_KEYS = ("epoch", "index", "steps", "samples")


def find_differences(our_folder: Path, reference_folder: Path) -> list[str]:
    """Return the names of all differences between two finished trainings, except timings.

    The comparison covers the published weights, the history, the histograms, and the state of every rank in
    the newest checkpoint.
    """
    ours, reference = FinishedRun(our_folder), FinishedRun(reference_folder)
    return [
        *_result_differences(ours, reference),
        *_state_differences(_last_rank_states(ours), _last_rank_states(reference)),
    ]


def _result_differences(ours: FinishedRun, reference: FinishedRun) -> Iterator[str]:
    for name in (RunPaths.model.name, RunPaths.nodes.name):
        if _bytes(ours.folder / name) != _bytes(reference.folder / name):
            yield name
    # zip_longest, because an epoch that only one of the trainings has is a difference, too.
    for epoch, (row, other) in enumerate(
        zip_longest(_history_without_timings(ours), _history_without_timings(reference)), 1
    ):
        if row != other:
            yield f"history of epoch {epoch}"
    if ours.summary["histograms"] != reference.summary["histograms"]:
        yield "histograms in summary.json"


def _bytes(path: Path) -> bytes | None:
    return path.read_bytes() if path.exists() else None


def _history_without_timings(job: FinishedRun) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in job.paths.state.history.read_text().splitlines()]
    return [{key: value for key, value in row.items() if key not in TIMING_KEYS} for row in rows]


def _last_rank_states(job: FinishedRun) -> list[RankState]:
    """Read all rank files of the newest checkpoint."""
    checkpoints = job.paths.state.checkpoints
    folder = checkpoints / checkpoint_folder_name(checkpoint_numbers(checkpoints)[-1])
    return [read_rank_file(folder, rank) for rank in range(CheckpointManifest.read(folder).ranks)]


def _state_differences(ours: list[RankState], reference: list[RankState]) -> Iterator[str]:
    for rank, (part, other) in enumerate(zip_longest(ours, reference)):
        if part is None or other is None:
            yield f"state of rank {rank}, which only one of the trainings has"
            continue
        yield from (
            f"{name} of rank {rank}" for name in POSITION_KEYS if part.progress[name] != other.progress[name]
        )
        for name in sorted(part.tensors.keys() | other.tensors.keys()):
            if _bits(part.tensors.get(name)) != _bits(other.tensors.get(name)):
                yield f"{name} of rank {rank}"


def _bits(tensor: Tensor | None) -> tuple[Any, ...] | None:
    # Bytes, because == treats NaN as different from itself and -0.0 as equal to 0.0.
    return None if tensor is None else (tensor.dtype, tensor.shape, tensor.numpy().tobytes())
