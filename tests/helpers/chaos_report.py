"""The report on a training with faults: a table of the faults and their costs, and checks of the result.

The result is compared bit for bit with that of the undisturbed training, unless the algorithm is not deterministic.
"""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

from torch import Tensor

from helpers.fault_injection import FaultAction, InjectedFault
from nnlo_lib.checkpoint.checkpoint_manifest import (
    CheckpointManifest,
    checkpoint_folder_name,
    checkpoint_numbers,
)
from nnlo_lib.checkpoint.rank_file import RankState, read_rank_file
from nnlo_lib.config.paths import RunPaths
from nnlo_lib.core.text_format import table_lines
from nnlo_lib.reliability.file_checks import (
    check_checkpoints,
    check_outputs,
    check_sample_ledger,
)
from nnlo_lib.reliability.findings import Finding, failed, load_finished_run, note, ok
from nnlo_lib.state.finished_run import FinishedRun
from nnlo_lib.train.task import Task

ACTION_LABELS: dict[FaultAction, str] = {
    "kill": "kill -9 of a rank",
    "kill_launcher": "kill -9 of the launcher",
    "term": "SIGTERM to a rank",
    "term_all": "SIGTERM to all ranks",
    "truncate": "rank file or manifest truncated",
    "bitflip": "bit flip in rank file/manifest",
    "enospc": "disk full during a checkpoint",
}

TIMING_KEYS = ("seconds", "samples_per_second", "bytes")  # bytes: a resume repeats the initial broadcast
POSITION_KEYS = ("epoch", "index", "steps", "samples")


def campaign_table(
    faults: Sequence[InjectedFault], task: Task, steps: int, undisturbed_s: float, faulted_s: float
) -> Iterator[str]:
    """Return the lines of a table of the injected faults and their costs.

    `steps`: of the whole training; `faulted_s`: seconds of all attempts with faults, and of the checks after them.
    """
    tally = load_finished_run(task.folder).attempt_statistics
    assert tally is not None, "the launcher records every attempt"
    kinds = Counter(fault.action for fault in faults)
    rows = [
        *((ACTION_LABELS[kind], f"{count:,}") for kind, count in kinds.most_common()),
        ("faults", f"{len(faults):,}"),
        ("attempts", f"{len(tally.attempts):,}"),
        ("steps", f"{steps:,}"),
        ("steps lost", f"{tally.lost_steps:,}"),
        ("seconds", f"{faulted_s:,.0f}"),
        ("seconds undisturbed", f"{undisturbed_s:,.0f}"),
        ("seconds per fault", f"{(faulted_s - undisturbed_s) / len(faults):.2f}"),
    ]
    return (f"  {line}" for line in table_lines(rows))


def check_faulted_run(faulted: Task, undisturbed: Task) -> Iterator[Finding]:
    """Check the training with faults, and compare it with the undisturbed training."""
    run = load_finished_run(faulted.folder)
    yield from check_outputs(run)
    yield from check_checkpoints(run)
    yield from check_sample_ledger(run)
    # The checks above hold for every algorithm; bitwise equality is promised only for deterministic ones.
    algorithm, reason = faulted.run.algorithm, ""
    if algorithm.is_asynchronous:
        reason = f"the ranks of {algorithm.name} do not wait for each other"
    elif not algorithm.sums_in_rank_order:
        reason = "with `algorithm.reduction: fastest`, MPI chooses the order in which gradients are added"
    if reason:
        yield note(f"not compared bit for bit with the undisturbed training: {reason}")
    elif found := find_differences(faulted.folder, undisturbed.folder):
        yield failed(f"differs from the undisturbed training: {', '.join(found)}")
    else:
        yield ok(
            "weights, history and the last state of every rank, including its optimizer, equal the undisturbed "
            "training bit for bit"
        )


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
