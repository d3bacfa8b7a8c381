"""Rank group: its leader gets fold tasks from the coordinator, and its ranks train them together."""

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import Any

from nnlo_lib.comm.communicator import PeerLostError
from nnlo_lib.comm.mpi.communicator import ABANDONED_COMMUNICATORS
from nnlo_lib.config.paths import RunPaths
from nnlo_lib.core.batch_system import BatchJob
from nnlo_lib.core.errors import EXIT_USER_ERROR, UserError
from nnlo_lib.core.logging_setup import get_logger
from nnlo_lib.executors.mpi_pool.protocol import ASSIGN_TAG, QUIT_TAG, REPORT_TAG, TRAIN_TAG
from nnlo_lib.executors.mpi_pool.rank_group import RankGroup, redirect_output
from nnlo_lib.executors.mpi_pool.stop_condition import PoolStopFlag
from nnlo_lib.executors.mpi_pool.world import COORDINATOR_RANK, PoolWorld
from nnlo_lib.executors.trial_job import train_fold_task
from nnlo_lib.launch.attempt import JobContext, LaunchOptions, run_attempt
from nnlo_lib.launch.diagnosis import ExitFacts, diagnose_exit
from nnlo_lib.launch.launcher import clear_previous_attempt
from nnlo_lib.launch.oom import kernel_oom_kills
from nnlo_lib.launch.signals import SignalSource
from nnlo_lib.launch.time_limit import TimeLimit
from nnlo_lib.search.study.storage import read_config
from nnlo_lib.search.study.trial import FoldTask
from nnlo_lib.state.outcome import AttemptOutcome
from nnlo_lib.train.task import Task

logger = get_logger(__name__)

TrainFunction = Callable[[FoldTask], int]  # trains a fold task; returns the status of train_fold_task


def run_group_leader(world: PoolWorld, work: TrainFunction) -> bool:
    """Train the fold tasks that the coordinator assigns, until it sends the order to quit.

    Return True if MPI is intact, so that it can be finalized.

    Raises:
        PeerLostError: if the coordinator or a rank of the group is lost.
    """
    fellows = [COORDINATOR_RANK, *world.members(world.block)[1:]]
    while not isinstance(
        order := world.wait_for(lambda: _order(world, COORDINATOR_RANK, ASSIGN_TAG), fellows), bool
    ):
        started = time.time()
        status, error = _run_task(work, FoldTask(*order))
        world.messenger.send(
            [status, error, started, time.time(), bool(ABANDONED_COMMUNICATORS)], COORDINATOR_RANK, REPORT_TAG
        )
    return order


def run_group_member(world: PoolWorld, train: Callable[[str], object]) -> bool:
    """Train the tasks that the group's leader sends until the order to quit; return True if MPI is intact."""
    leader = world.members(world.block)[0]
    while not isinstance(
        order := world.wait_for(lambda: _order(world, leader, TRAIN_TAG), [COORDINATOR_RANK, leader]), bool
    ):
        train(order)
    return order


def _order(world: PoolWorld, source: int, tag: int) -> Any:
    """Return the next order, or the coordinator's message at the end, or None if neither has arrived."""
    found = world.messenger.receive(source, tag) or world.messenger.receive(COORDINATOR_RANK, QUIT_TAG)
    return found[1] if found else None


def _run_task(work: TrainFunction, fold_task: FoldTask) -> tuple[int, str]:
    """Return the status of a fold task, and the error that must end the search or an empty string."""
    try:
        return work(fold_task), ""
    except PeerLostError:
        raise
    except UserError as error:
        return EXIT_USER_ERROR, str(error)
    except Exception as error:
        return 1, f"{type(error).__name__}: {error}"


def failing_train_function(fault: str) -> TrainFunction:
    """Return a function for a group that cannot train: the coordinator ends the search with `fault`."""

    def work(_: FoldTask) -> int:
        raise UserError(fault)

    return work


class GroupTrainer:
    """Function of a group's leader: trains fold tasks like a launcher, but on ranks that already run."""

    def __init__(
        self, world: PoolWorld, crew: RankGroup, folder: Path, stop: PoolStopFlag, limit: TimeLimit
    ) -> None:
        self._world, self._crew, self._folder, self._stop = world, crew, folder, stop
        self._experiment, self._place = read_config(folder), JobContext(BatchJob.current(), limit, stop)
        self._broken: PeerLostError | None = None

    def __call__(self, fold_task: FoldTask) -> int:
        """Train a fold task; return its `train_fold_task` status. Raises PeerLostError if a rank is lost."""
        with redirect_output(RunPaths(fold_task.run_folder(self._folder)).trial_log):
            return train_fold_task(
                self._experiment, self._folder, fold_task, LaunchOptions(wait_for_lease=True), self._attempted
            )

    def _attempted(self, task: Task, launch_options: LaunchOptions) -> AttemptOutcome:
        outcome = run_attempt(task, launch_options, self._place, self._launch)
        if outcome.error:
            logger.info(outcome.error)
        if self._broken:
            raise self._broken
        return outcome

    def _launch(
        self, task: Task, _: str, limit: TimeLimit, heard: SignalSource, lost: Event
    ) -> AttemptOutcome:
        clear_previous_attempt(task.state)
        self._stop.lost, starved = lost, kernel_oom_kills()
        for fellow in self._world.members(self._world.block)[1:]:
            self._world.messenger.send(task.text, fellow, TRAIN_TAG)
        try:
            statuses = self._crew.train(task)
        except PeerLostError as error:
            self._broken = error
            return AttemptOutcome("peer lost", str(error))
        end = ExitFacts(max(statuses), {}, [], heard.first, kernel_oom_kills() > starved, limit)
        outcome = diagnose_exit(task, end)
        shutil.rmtree(
            task.paths.state.ranks, ignore_errors=True
        )  # these ranks continue to run: the next launcher must not kill them
        return outcome
