"""Train one leaf of a search: whatever comes of it is a result, unless it was asked to stop."""

import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from nnlo_lib.config import Experiment, Run
from nnlo_lib.data.manifest import Manifest
from nnlo_lib.errors import UserError
from nnlo_lib.jobs import gpus, manifest_of
from nnlo_lib.launch.attempt import Wishes
from nnlo_lib.launch.command import attempted
from nnlo_lib.search.trial import Leaf, Result, read_result, read_trial
from nnlo_lib.state import attempts
from nnlo_lib.state.outcome import Outcome
from nnlo_lib.state.reason import CHANCE, YIELDED
from nnlo_lib.state.retries import MEMORY_RAISES
from nnlo_lib.train.task import Task
from nnlo_lib.tune.trial_run import task_of, trial_run

TRIES = 3  # of a leaf that chance ended
Attempted = Callable[[Task, Wishes], Outcome]


def train_leaf(
    experiment: Experiment, folder: Path, leaf: Leaf, wishes: Wishes, attempted: Attempted = attempted
) -> int:
    """Train until the leaf is done; return 0 with its result on disk, 75 saved and stopped, 1 try again, 2 the disk.

    folder: of the search. A failure that would come again is a result. Raises UserError if somebody else trains it.
    """
    if read_result(folder, leaf):
        return 0
    point = read_trial(folder, leaf.trial).point
    manifest = Manifest.load(Path(manifest_of(experiment)))  # a fault of which is no point's
    try:
        too_large = _too_large(experiment, trial_run(experiment, point), manifest)
    except UserError as error:
        return _publish(folder, Result(leaf, "failed", error=str(error)))
    if too_large:
        return _publish(folder, Result(leaf, "unwanted", error=too_large))
    task, started = task_of(experiment, folder, leaf, point), time.time()
    outcome = _tried(task, wishes, attempted)
    if read_result(folder, leaf):  # of another job, that was waited for
        return 0
    if outcome.reason in (*YIELDED, "disk full") or _may_get_more_memory(task, outcome, wishes):
        return outcome.status
    lost = attempts.interrupted(attempts.read(task.state), started)
    result = replace(_result(task, leaf, outcome), started=started, ended=time.time(), interrupted=lost)
    return _publish(folder, result)


def _tried(task: Task, wishes: Wishes, attempted: Attempted) -> Outcome:
    """Try again what chance ended."""
    outcome = attempted(task, wishes)
    for _ in range(TRIES - 1):
        if outcome.reason not in CHANCE:
            break
        outcome = attempted(task, wishes)
    return outcome


def _may_get_more_memory(task: Task, outcome: Outcome, wishes: Wishes) -> bool:
    """Tell whether the scheduler can be asked again, for more."""
    asks = outcome.reason == "out of memory" and wishes.attempt is not None
    return asks and attempts.out_of_memory(attempts.read(task.state)) <= MEMORY_RAISES


def _result(task: Task, leaf: Leaf, outcome: Outcome) -> Result:
    parallel = task.run.parallel
    processes = parallel.ranks if parallel.transport == "mpi" else 1
    return Result(
        leaf, "finished" if outcome.reason == "finished" else "failed", _rows(task, leaf.epochs), outcome.error,
        cores=processes * parallel.threads_per_rank, gpus=gpus(task.run),
    )  # fmt: skip


def _rows(task: Task, epochs: int) -> tuple[dict[str, float], ...]:
    """Return the history up to an epoch."""
    try:
        lines = (task.state / "history.jsonl").read_text().splitlines()
    except FileNotFoundError:
        return ()
    rows = [json.loads(line) for line in lines]
    return tuple(row for row in rows if row["epoch"] <= epochs)


def _too_large(experiment: Experiment, run: Run, manifest: Manifest) -> str:
    """Say so if the model has more parameters than the objective allows. Raises UserError if it cannot be built."""
    search = experiment.search
    most = search.objective.max_parameters if search else None
    if most is None:
        return ""
    from nnlo_lib.tune.parameters import count_parameters

    count = count_parameters(run, manifest, experiment.seeds[0])
    return f"{count:,} parameters, and search.objective.max_parameters is {most:,}" if count > most else ""


def _publish(folder: Path, result: Result) -> int:
    result.write(folder)
    return 0
