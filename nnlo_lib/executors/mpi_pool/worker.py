"""Roles in a rank group: its leader receives fold tasks from the coordinator, and all its ranks train them together.

Before, the GPUs of a host are assigned to its rank groups, so that the groups use different GPUs.
"""

import os
import shutil
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Event
from typing import Any

from nnlo_lib.batch import BatchJob
from nnlo_lib.comm.communicator import PeerLostError
from nnlo_lib.comm.mpi.communicator import ABANDONED_COMMUNICATORS
from nnlo_lib.config import Experiment
from nnlo_lib.config.paths import RunPaths
from nnlo_lib.core.errors import EXIT_USER_ERROR, UserError
from nnlo_lib.core.logging_setup import get_logger
from nnlo_lib.core.process import GPU_SUBSET, visible_gpus
from nnlo_lib.core.text_format import plural
from nnlo_lib.core.user_code import error_with_source_line
from nnlo_lib.executors.gpu_slots import choose_gpus
from nnlo_lib.executors.mpi_pool.rank_group import PoolStopFlag, RankGroup, redirect_output
from nnlo_lib.executors.mpi_pool.world import (
    ASSIGN_TAG,
    COORDINATOR_RANK,
    QUIT_TAG,
    REPORT_TAG,
    TRAIN_TAG,
    PoolWorld,
)
from nnlo_lib.executors.trial_job import train_fold_task
from nnlo_lib.launch.attempt import JobContext, LaunchOptions, run_attempt
from nnlo_lib.launch.diagnosis import ExitFacts, diagnose_exit
from nnlo_lib.launch.launcher import clear_previous_attempt
from nnlo_lib.launch.stop_request import SignalSource, TimeLimit
from nnlo_lib.search.study.storage import read_config
from nnlo_lib.search.study.trial import FoldTask
from nnlo_lib.state.attempt_outcome import AttemptOutcome
from nnlo_lib.state.out_of_memory import kernel_oom_kills
from nnlo_lib.train.task import Task

logger = get_logger(__name__)

TrainFunction = Callable[[FoldTask], int]  # trains a fold task; returns the status of train_fold_task


def run_group_leader(world: PoolWorld, work: TrainFunction) -> bool:
    """Train the fold tasks that the coordinator assigns, until it sends the message to quit (QUIT_TAG).

    Return True if MPI is intact, so that it can be finalized.

    Raises:
        PeerLostError: if the coordinator or a rank of the group is lost.
    """
    awaited = [COORDINATOR_RANK, *world.members(world.group)[1:]]
    # A message to quit is a bool, an assignment a list of numbers.
    while not isinstance(
        message := world.wait_for(lambda: _next_message(world, COORDINATOR_RANK, ASSIGN_TAG), awaited), bool
    ):
        started = time.time()
        status, error = _run_task(work, FoldTask(*message))
        world.messenger.send(
            [status, error, started, time.time(), bool(ABANDONED_COMMUNICATORS)], COORDINATOR_RANK, REPORT_TAG
        )
    return message


def run_group_member(world: PoolWorld, train: Callable[[str], object]) -> bool:
    """Train the tasks that the group's leader sends, until the message to quit; return True if MPI is intact."""
    leader = world.members(world.group)[0]
    while not isinstance(
        message := world.wait_for(
            lambda: _next_message(world, leader, TRAIN_TAG), [COORDINATOR_RANK, leader]
        ),
        bool,
    ):
        train(message)
    return message


def _next_message(world: PoolWorld, source: int, tag: int) -> Any:
    """Return the next message of a rank or the coordinator's message to quit; None if neither has arrived."""
    received = world.messenger.receive(source, tag) or world.messenger.receive(COORDINATOR_RANK, QUIT_TAG)
    return received[1] if received else None


def _run_task(work: TrainFunction, fold_task: FoldTask) -> tuple[int, str]:
    """Return the status of a fold task, and the error that must end the search, or an empty string."""
    try:
        return work(fold_task), ""
    except PeerLostError:
        raise
    except UserError as error:
        return EXIT_USER_ERROR, str(error)
    except Exception as error:
        return 1, error_with_source_line(error)


def failing_train_function(fault: str) -> TrainFunction:
    """Return a function for a rank group that cannot train: the coordinator then ends the search with `fault`."""

    def work(_: FoldTask) -> int:
        raise UserError(fault)

    return work


class GroupTrainer:
    """Trains fold tasks like a launcher, but on the ranks of a rank group, which already run; for its leader."""

    def __init__(
        self, world: PoolWorld, group: RankGroup, folder: Path, stop: PoolStopFlag, limit: TimeLimit
    ) -> None:
        self._world, self._group, self._folder, self._stop = world, group, folder, stop
        self._experiment, self._context = read_config(folder), JobContext(BatchJob.current(), limit, stop)
        self._group_error: PeerLostError | None = None

    def __call__(self, fold_task: FoldTask) -> int:
        """Train a fold task; return its `train_fold_task` status. Raises PeerLostError if a rank is lost."""
        with redirect_output(RunPaths(fold_task.run_folder(self._folder)).trial_log):
            options = LaunchOptions(wait_for_lease=True)
            return train_fold_task(self._experiment, self._folder, fold_task, options, self._run_attempt)

    def _run_attempt(self, task: Task, launch_options: LaunchOptions) -> AttemptOutcome:
        outcome = run_attempt(task, launch_options, self._context, self._launch)
        if outcome.error:
            logger.info(outcome.error)
        if self._group_error:
            # Only now: run_attempt has recorded the attempt and released the lease.
            raise self._group_error
        return outcome

    def _launch(
        self, task: Task, _: str, limit: TimeLimit, signals: SignalSource, lost: Event
    ) -> AttemptOutcome:
        clear_previous_attempt(task.state)
        self._stop.lost, oom_kills_before = lost, kernel_oom_kills()
        for member in self._world.members(self._world.group)[1:]:
            self._world.messenger.send(task.text, member, TRAIN_TAG)
        try:
            statuses = self._group.train(task)
        except PeerLostError as error:
            self._group_error = error
            return AttemptOutcome("peer lost", str(error))
        is_oom = kernel_oom_kills() > oom_kills_before
        end = ExitFacts(max(statuses), limit, signals.first, oom_killed=is_oom)
        outcome = diagnose_exit(task, end)
        # These ranks continue to run: the next launcher in this run folder must not kill them.
        shutil.rmtree(task.paths.state.ranks, ignore_errors=True)
        return outcome


def assign_gpus(world: PoolWorld, experiment: Experiment) -> str:
    """Restrict this rank to the GPUs of its group; return the error, or an empty string on success."""
    space = experiment.search.space if experiment.search else {}
    if not (experiment.parallel.gpus_per_rank or "parallel.gpus_per_rank" in space):
        return ""
    shown = visible_gpus()
    # The scheduler may show each rank its own GPU; otherwise, all ranks share this one.
    if len(shown) == 1:
        return ""
    try:
        group_gpus = gpus_of_group(world, experiment, shown)
    except UserError as error:
        return str(error)
    os.environ[GPU_SUBSET] = ",".join(map(str, group_gpus))
    return ""


def gpus_of_group(world: PoolWorld, experiment: Experiment, shown: Sequence[int]) -> list[int]:
    """Assign the GPUs of this host to its rank groups in order; return the GPUs of this rank's group.

    `shown`: visible GPUs of this host. Raises UserError if too few GPUs are left for a group.
    """
    host, ranks_per_gpu = world.processes[world.rank].host, experiment.parallel.ranks_per_gpu
    taken, group_gpus = Counter[int](), list[int]()
    # Each rank computes the GPUs of all groups up to its own, so that the ranks agree without messages.
    for group in range(world.group + 1):
        local_ranks = [
            rank for rank in _gpu_ranks(world, experiment, group) if world.processes[rank].host == host
        ]
        wanted = -(-len(local_ranks) // ranks_per_gpu)
        # A group with fewer ranks than `ranks_per_gpu` leaves slots of its GPU to other groups.
        chosen = choose_gpus(taken, shown, wanted, max(1, ranks_per_gpu // max(1, len(local_ranks))))
        if chosen is None:
            raise UserError(
                f"rank group {group} (of {len(world.groups)}, numbered from 0) needs {plural(wanted, 'GPU')} on {host}, but too few "
                f"of the {len(shown)} visible GPUs are free; start fewer --ranks, let more ranks share a GPU (raise "
                "parallel.ranks_per_gpu), or train on CPUs (parallel.gpus_per_rank: 0)"
            )
        taken.update(chosen)
        group_gpus = chosen
    return group_gpus


def _gpu_ranks(world: PoolWorld, experiment: Experiment, group: int) -> Sequence[int]:
    """Return the ranks of a group that need a GPU.

    Servers that use no GPU are excluded, but only if all trials have the same algorithm.
    """
    space = experiment.search.space if experiment.search else {}
    searched = any(key.startswith("algorithm") for key in space)
    without_gpu = 0 if experiment.parallel.master_gpu or searched else experiment.algorithm.servers
    return world.members(group)[without_gpu:]
