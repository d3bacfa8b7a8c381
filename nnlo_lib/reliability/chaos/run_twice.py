"""Train a run undisturbed, then with random faults, and compare the results bit for bit."""

import shutil
import sys
import time
from collections import Counter
from dataclasses import replace

from tqdm import tqdm

from nnlo_lib.algorithms.factory import roles
from nnlo_lib.core.errors import UserError
from nnlo_lib.launch.crash_recovery import read_progress
from nnlo_lib.reliability.chaos.campaign import FaultCampaign
from nnlo_lib.reliability.chaos.faulty_attempt import UnfinishedError, run_faulty_attempt
from nnlo_lib.reliability.chaos.report import CampaignSeconds, campaign_table, check_faulted_run
from nnlo_lib.train.dataset import TrainingData
from nnlo_lib.train.fault_injection import reached_failpoints
from nnlo_lib.train.task import Task

CHECKPOINTS_PER_FAULT = 4  # approximate number of checkpoints between two faults
ATTEMPT_EXTRA_TIMEOUT_S = 300.0  # seconds for an attempt, added to three times the undisturbed training


def run_twice(undisturbed: Task, faulted: Task, launcher: str, seed: int, faults: int) -> int:
    """Train a task undisturbed, then with random faults in another folder; print a report.

    Both task folders are emptied first.

    Args:
        undisturbed: task to train without faults.
        faulted: the same task in another folder, to train with faults.
        launcher: command that starts the ranks.
        seed: seed of the faults.
        faults: number of faults.

    Returns:
        1 if the training with faults does not finish or a check fails, else 0.
    """
    # Both tasks have the same checkpoint interval, because the failpoints of the undisturbed training
    # determine where faults are injected.
    undisturbed, faulted = (
        _with_frequent_checkpoints(_emptied(task), faults) for task in (undisturbed, faulted)
    )
    undisturbed_s = _train(undisturbed, launcher)
    # A training saves a checkpoint when it ends, so the newest checkpoint holds the last step.
    steps = read_progress(undisturbed.state)[2]
    timeout_s = ATTEMPT_EXTRA_TIMEOUT_S + 3 * undisturbed_s
    campaign = FaultCampaign(faulted, launcher, seed, steps, _failpoint_counts(undisturbed), timeout_s)
    started = time.monotonic()
    try:
        with tqdm(total=faults, unit=" faults", desc=f"chaos, seed {seed}", file=sys.stderr) as bar:
            campaign.run(faults, bar.update)
    except UnfinishedError as error:
        print(f"FAILED: {error}")
        return 1
    findings = list(check_faulted_run(faulted, undisturbed))
    times = CampaignSeconds(undisturbed_s, time.monotonic() - started)
    print(*campaign_table(campaign.injected_faults, faulted, steps, times), *findings, sep="\n")
    return int(any(finding.status == "FAILED" for finding in findings))


def _train(task: Task, launcher: str) -> float:
    """Train without faults; return the seconds. Raises UserError if the training does not finish."""
    started = time.monotonic()
    if run_faulty_attempt(task, launcher, [], None):
        raise UserError(f"{task.folder}: the training without faults failed; see {task.paths.chaos_log}")
    return time.monotonic() - started


def _emptied(task: Task) -> Task:
    shutil.rmtree(task.folder, ignore_errors=True)
    return task


def _with_frequent_checkpoints(task: Task, faults: int) -> Task:
    """Return the task with about CHECKPOINTS_PER_FAULT checkpoints per fault.

    A run that sets its checkpoint interval in steps keeps it.
    """
    if task.run.checkpoint.steps:
        return task
    workers = roles(task.run, task.run.parallel.ranks).count("worker")
    steps = TrainingData(task, workers).loader(0).steps_per_epoch * task.run.train.epochs
    # There are `faults + 1` intervals between the start, the faults and the end.
    every = f"{max(1, steps // (CHECKPOINTS_PER_FAULT * (faults + 1)))} steps"
    checkpoint = task.run.checkpoint.model_copy(update={"every": every})
    return replace(task, run=task.run.model_copy(update={"checkpoint": checkpoint}))


def _failpoint_counts(task: Task) -> list[Counter[str]]:
    """Return the failpoint counts of each process of a finished training; simulated ranks share a process."""
    parallel = task.run.parallel
    return [
        reached_failpoints(task.folder, rank)
        for rank in range(1 if parallel.transport == "simulated" else parallel.ranks)
    ]
