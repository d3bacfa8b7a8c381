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
from nnlo_lib.executors.mpi_pool.rank_group import PoolStopFlag, RankGroup
from nnlo_lib.executors.mpi_pool.world import (
    ASSIGN_TAG,
    COORDINATOR_RANK,
    QUIT_TAG,
    REPORT_TAG,
    TRAIN_TAG,
    PoolWorld,
)
from nnlo_lib.executors.trial_job import redirect_output, train_fold_task
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


def serve(world: PoolWorld, work: Callable[[Any], object]) -> bool:
    """Do the work of each message until the coordinator's message to quit; return True if MPI is intact, to be finalized.

    A leader gets the numbers of fold tasks from the coordinator, the other ranks get tasks as text from their leader.

    Raises PeerLostError if the coordinator or, for a leader, a rank of the group is lost.
    """
    leader, *others = world.members(world.group)
    source, tag = (COORDINATOR_RANK, ASSIGN_TAG) if world.is_leader else (leader, TRAIN_TAG)
    awaited = [COORDINATOR_RANK, *(others if world.is_leader else [leader])]

    def next_message() -> Any:
        received = world.messenger.receive(source, tag) or world.messenger.receive(COORDINATOR_RANK, QUIT_TAG)
        return received[1] if received else None

    # Only a message to quit is a bool.
    while not isinstance(message := world.wait_for(next_message, awaited), bool):
        work(message)
    return message


def report(world: PoolWorld, work: TrainFunction, numbers: Sequence[int]) -> None:
    """Train the fold task with these numbers, and report its end to the coordinator."""
    started = time.time()
    status, error = run_task(work, FoldTask(*numbers))
    broken = bool(ABANDONED_COMMUNICATORS)
    world.messenger.send([status, error, started, time.time(), broken], COORDINATOR_RANK, REPORT_TAG)


def run_task(work: TrainFunction, fold_task: FoldTask) -> tuple[int, str]:
    """Return the status of a fold task, and the error that must end the search, or an empty string."""
    try:
        return work(fold_task), ""
    except PeerLostError:
        raise
    except UserError as error:
        return EXIT_USER_ERROR, str(error)
    except Exception as error:
        return 1, error_with_source_line(error)


class GroupTrainer:
    """Trains fold tasks like a launcher, but on the ranks of a rank group, which already run; for its leader.

    With a `fault`, it cannot train: the coordinator then ends the search.
    """

    def __init__(
        self,
        world: PoolWorld,
        group: RankGroup,
        folder: Path,
        stop: PoolStopFlag,
        limit: TimeLimit,
        fault: str,
    ) -> None:
        self._world, self._group, self._folder, self._stop, self._fault = world, group, folder, stop, fault
        self._experiment, self._context = read_config(folder), JobContext(BatchJob.current(), limit, stop)
        self._group_error: PeerLostError | None = None

    def __call__(self, fold_task: FoldTask) -> int:
        """Train a fold task; return its `train_fold_task` status. Raises PeerLostError if a rank is lost."""
        if self._fault:
            raise UserError(self._fault)
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
    """Return the GPUs of this rank's group, if the groups of a host get its GPUs in order. Raises UserError if too few are left."""
    host, ranks_per_gpu = world.processes[world.rank].host, experiment.parallel.ranks_per_gpu
    taken, group_gpus = Counter[int](), list[int]()
    space = experiment.search.space if experiment.search else {}
    searched = any(key.startswith("algorithm") for key in space)
    # Servers that use no GPU do not count, but only if all trials have the same algorithm.
    without_gpu = 0 if experiment.parallel.master_gpu or searched else experiment.algorithm.servers
    # Each rank computes the GPUs of all groups up to its own, so that the ranks agree without messages.
    for group in range(world.group + 1):
        ranks = world.members(group)[without_gpu:]
        local_ranks = [rank for rank in ranks if world.processes[rank].host == host]
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
