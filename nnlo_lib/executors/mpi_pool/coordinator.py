"""Rank 0 of the pool: assigns fold tasks to idle rank groups, and reassigns the fold tasks of lost groups."""

import json
import time
from dataclasses import dataclass, field
from pathlib import Path

from mpi4py import MPI

from nnlo_lib.config.paths import RunPaths, SearchPaths, SearchStatePaths
from nnlo_lib.config.search import MpiPoolConfig
from nnlo_lib.core.errors import UserError
from nnlo_lib.core.logging_setup import get_logger
from nnlo_lib.core.text_format import plural
from nnlo_lib.executors.mpi_pool.pool_launcher import FailureLog, NoGroupLeftError
from nnlo_lib.executors.mpi_pool.world import (
    ASSIGN_TAG,
    GROUP_LOST_TAG,
    LIVENESS_CHECK_INTERVAL_S,
    MESSAGE_POLL_INTERVAL_S,
    QUIT_TAG,
    REPORT_TAG,
    STOP_TAG,
    HeartbeatMonitor,
    PoolWorld,
)
from nnlo_lib.executors.trial_job import interrupted_costs
from nnlo_lib.search.study.trial import FoldTask, Result, read_result
from nnlo_lib.state.attempt_outcome import EXIT_PREEMPTED
from nnlo_lib.train.rank_process import StopFlag

logger = get_logger(__name__)

SAVE_TIMEOUT_S = 900.0  # for all groups to save and stop; then the launcher kills the remaining ranks


class Coordinator:
    """Executor that trains on the rank groups of an allocation; each rank except this one belongs to a group.

    `cores`: number of cores of a rank group.
    """

    def __init__(
        self, world: PoolWorld, folder: Path, config: MpiPoolConfig, cores: int, stop: StopFlag
    ) -> None:
        self._world, self._folder, self._config, self._stop = world, folder, config, stop
        self._cores, self._liveness_checked_at, self._stop_requested = cores, time.monotonic(), False
        self._alive = {group: HeartbeatMonitor(heartbeat_file(folder, group)) for group in world.groups}
        self._busy: dict[int, tuple[FoldTask, float]] = {}
        self._queue: list[FoldTask] = []
        self._failures, self._last_loss = FailureLog(folder), ""
        self._mpi_is_broken = False
        self.utilization = PoolUtilization(len(world.groups))

    def start(self, fold_task: FoldTask) -> None:
        """Queue a fold task for an idle rank group."""
        self._queue.append(fold_task)
        # A fold task that has lost a group is assigned only after all tasks of this round are queued.
        if not self._failures[fold_task]:
            self._assign()

    def wait(self) -> bool:
        """Wait until a fold task has ended; return False when all groups have stopped on request.

        Raises UserError if a trial cannot be trained, and NoGroupLeftError if no rank group is left.
        """
        while not self._must_stop():
            if not self._alive:
                raise NoGroupLeftError(f"no rank group is left; the last loss: {self._last_loss}")
            self._assign()
            if self._receive() or self._check_liveness():
                return True
            time.sleep(MESSAGE_POLL_INTERVAL_S)
        return self._stop_all()

    def shut_down(self) -> bool:
        """Order all ranks to quit; ranks that train save first. Return True if MPI can be finalized."""
        # MPI.Finalize would wait for ever for lost ranks and for messages that are never received.
        mpi_is_intact = not (self.utilization.losses or self._mpi_is_broken or self._busy)
        # A group reads QUIT only between trainings; STOP ends its training before.
        self._stop_trainings()
        for group in self._alive:
            self._quit(group, mpi_is_intact)
        return mpi_is_intact

    def _assign(self) -> None:
        """Assign queued fold tasks to idle groups, the tasks with the fewest lost groups first.

        A fold task that may break another group is thus trained after all other fold tasks.
        """
        for group in self._alive:
            if self._queue and group not in self._busy:
                fold_task = min(self._queue, key=self._failures.__getitem__)
                self._queue.remove(fold_task)
                self._busy[group] = fold_task, time.time()
                work = [fold_task.trial, fold_task.fold, fold_task.epochs]
                self._world.messenger.send(work, self._world.members(group)[0], ASSIGN_TAG)

    def _must_stop(self) -> bool:
        return self._stop_requested or self._stop()

    def wait_until_idle(self) -> None:
        """Wait until all groups are idle: a result may appear on disk before its group's report arrives."""
        end = time.monotonic() + SAVE_TIMEOUT_S
        while self._busy and time.monotonic() < end:
            self._receive()
            self._check_liveness()
            time.sleep(MESSAGE_POLL_INTERVAL_S)

    def _stop_all(self) -> bool:
        """Ask the groups that train to stop, and wait until they have saved; return False."""
        self._mpi_is_broken = True  # the stop messages may never be received
        self._stop_trainings()
        self.wait_until_idle()
        return False

    def _stop_trainings(self) -> None:
        for rank in (rank for group in self._busy for rank in self._world.members(group)):
            self._world.messenger.send(None, rank, STOP_TAG)

    def _quit(self, group: int, mpi_is_intact: bool) -> None:
        for rank in self._world.members(group):
            self._world.messenger.send(mpi_is_intact, rank, QUIT_TAG)

    def _receive(self) -> bool:
        """Receive one report of a group; return True if a fold task has ended."""
        if found := self._world.messenger.receive(MPI.ANY_SOURCE, GROUP_LOST_TAG):
            rank, why = found
            return self._remove_group((rank - 1) // self._world.size, why)
        found = self._world.messenger.receive(MPI.ANY_SOURCE, REPORT_TAG)
        return found is not None and self._ended((found[0] - 1) // self._world.size, *found[1])

    def _ended(
        self, group: int, status: int, error: str, started: float, ended: float, mpi_is_broken: bool
    ) -> bool:
        self._mpi_is_broken = self._mpi_is_broken or mpi_is_broken
        # The group was removed as lost, and its report arrived late.
        if group not in self._busy:
            return False
        fold_task, _ = self._busy.pop(group)
        self.utilization.add(started, ended)
        self._stop_requested = self._stop_requested or status == EXIT_PREEMPTED
        # The group gets a task that was decided ahead, so that it does not wait for the next decision.
        if not (status or self._must_stop()):
            self._assign()
        if status not in (0, EXIT_PREEMPTED):
            self._stop_requested = True
            self._stop_all()
            log = RunPaths(fold_task.run_folder(self._folder)).trial_log
            raise UserError(
                f"trial {fold_task.trial} cannot be trained: {error or f'its training ended with status {status}; see {log}'}"
            )
        return True

    def _check_liveness(self) -> bool:
        """Remove lost groups, at most every LIVENESS_CHECK_INTERVAL_S; return True if a fold task has ended."""
        if time.monotonic() - self._liveness_checked_at < LIVENESS_CHECK_INTERVAL_S:
            return False
        self._liveness_checked_at = time.monotonic()
        # With Hydra, ranks ignore SIGUSR1 (KEEP_ALIVE_SHELL), so the launcher also writes this file.
        if SearchPaths(self._folder).state.pool_stop.exists():
            self._stop_requested = True
        lost = [(group, why) for group in self._alive if (why := self._loss_of(group))]
        # A list, because `any` would leave further lost groups in place.
        ended_tasks = [self._remove_group(group, why) for group, why in lost]
        return any(ended_tasks)

    def _loss_of(self, group: int) -> str:
        """Return why a rank group is lost, or an empty string."""
        world, heartbeat, leader = self._world, self._alive[group], self._world.members(group)[0]
        if ended := world.ended_ranks(world.members(group)):
            return f"{world.describe_rank(ended[0])} has ended"
        if heartbeat.poll() <= self._config.silence:
            return ""
        # A scheduler that suspends a job stops the coordinator, too; another stopped leader is lost.
        if world.is_stopped(leader):
            return f"{world.describe_rank(leader)} is stopped and sent no heartbeat for {heartbeat.seconds:.0f} s"
        # A leader that runs on this host is only slow.
        is_local = world.processes[leader].is_local
        return (
            ""
            if is_local
            else f"{world.describe_rank(leader)} sent no heartbeat for {heartbeat.seconds:.0f} s"
        )

    def _remove_group(self, group: int, why: str) -> bool:
        """Remove a lost group and queue its fold task again; return True if the fold task has ended.

        It has ended if its result is on disk, or if too many groups were lost while they trained it.
        """
        if self._alive.pop(group, None) is None:
            return False
        # Live members on another host than their leader cannot observe its loss and would wait for ever.
        self._quit(group, mpi_is_intact=False)
        fold_task, started = self._busy.pop(group, (None, 0.0))
        self._last_loss = why
        self.utilization.losses[group] = time.time()
        logger.warning(f"lost rank group {group}, {len(self._alive)} left: {why}")
        return fold_task is not None and self._requeue_task(fold_task, started, why)

    def _requeue_task(self, fold_task: FoldTask, started: float, why: str) -> bool:
        self._failures.add(fold_task, why)
        if read_result(self._folder, fold_task):
            return True
        if self._failures[fold_task] < self._config.deaths:
            self._queue.append(fold_task)
            return False
        error = (
            f"{self._failures[fold_task]} rank groups were lost while they trained this; the last loss: {why}"
        )
        # The groups that were lost before count as costs, too.
        lost = interrupted_costs(RunPaths(fold_task.run_folder(self._folder)).state.folder, started)
        result = Result(
            fold_task, "failed", error=error, started=started, ended=time.time(), cores=self._cores, **lost
        )
        result.write(self._folder)
        return True


def heartbeat_file(folder: Path, group: int) -> Path:
    """Return the heartbeat file of a rank group's leader."""
    return SearchPaths(folder).state.pool_heartbeats / str(group)


@dataclass
class PoolUtilization:
    """Utilization of the rank groups: times in seconds since 1970, `losses` by group, and `trained` in seconds of all trainings."""

    groups: int
    begun: float = field(default_factory=time.time)
    trained: float = 0.0
    trainings: int = 0
    losses: dict[int, float] = field(default_factory=dict)

    def add(self, started: float, ended: float) -> None:
        """Count a training by its start and end."""
        self.trained += ended - started
        self.trainings += 1

    def utilization(self, now: float) -> float:
        """Return the seconds of training divided by the seconds of all rank groups up to `now`; lost groups count until their loss."""
        allocated = self.groups * (now - self.begun) - sum(now - lost_at for lost_at in self.losses.values())
        return self.trained / allocated if allocated > 0 else 0.0

    def write(self, state: Path) -> None:
        """Log the utilization, and append it to its file in the state folder; log a warning if it cannot be written."""
        now = time.time()
        logger.info(
            f"{plural(self.trainings, 'training')} on {plural(self.groups, 'rank group')} in {now - self.begun:.1f} s: "
            f"{100 * self.utilization(now):.1f} % of the rank groups' time was training"
        )
        row = {
            "begun": self.begun, "ended": now, "blocks": self.groups, "lost": len(self.losses),
            "trainings": self.trainings, "trained": round(self.trained, 3),
            "utilisation": round(self.utilization(now), 4),
        }  # fmt: skip
        path = SearchStatePaths(state).pool_utilization
        try:
            with path.open("a") as file:
                file.write(json.dumps(row) + "\n")
        except OSError as error:
            # A statistic: the search's own end, which the launcher reads next, is worth more.
            logger.warning(f"cannot write {path}: {error.strerror}")
