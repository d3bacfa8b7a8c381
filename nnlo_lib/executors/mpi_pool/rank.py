"""One rank of the MPI pool: `python -m nnlo_lib.executors.mpi_pool.rank FOLDER --size N`, started by MPI."""

import argparse
import json
import os
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

from nnlo_lib.batch import BatchJob
from nnlo_lib.comm.communicator import PeerLostError
from nnlo_lib.config.paths import SearchPaths
from nnlo_lib.core.atomic_file import atomic_write
from nnlo_lib.core.errors import EXIT_USER_ERROR, UserError
from nnlo_lib.core.logging_setup import get_logger
from nnlo_lib.executors.mpi_pool.coordinator import Coordinator, heartbeat_file
from nnlo_lib.executors.mpi_pool.pool_launcher import NO_GROUP_STATUS, NoGroupLeftError
from nnlo_lib.executors.mpi_pool.rank_group import PoolStopFlag
from nnlo_lib.executors.mpi_pool.world import COORDINATOR_RANK, GROUP_LOST_TAG, PoolWorld, start_heartbeat
from nnlo_lib.executors.progress import ProgressLogger
from nnlo_lib.launch.launcher import die_with_parent
from nnlo_lib.launch.stop_request import TimeLimit
from nnlo_lib.search.study.storage import read_config
from nnlo_lib.search.study.study import Study, run_study
from nnlo_lib.state.attempt_outcome import EXIT_PREEMPTED
from nnlo_lib.train.rank_process import exit_process, register_rank

logger = get_logger("nnlo_lib.executors.mpi_pool.rank")  # `python -m` sets __name__ to __main__

FLUSH_TIME_S = 0.5  # for MPI to transfer the last messages of a rank
GroupRole = Callable[[PoolWorld, PoolStopFlag], bool]  # of a rank in a group; returns True if MPI is intact


def main() -> None:
    """Run one rank until the search ends or stops on request, or until this rank's group is broken."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="results/<experiment>/search")
    parser.add_argument("--size", type=int, required=True, help="ranks of a rank group")
    parser.add_argument("--minutes", type=float, help="minutes until the scheduler ends the job")
    options = parser.parse_args()
    limit = TimeLimit(options.minutes, BatchJob.current())
    run_pool_rank(
        options.folder, options.size, lambda world, stop: _train(world, options.folder, stop, limit), limit
    )


def run_pool_rank(folder: Path, size: int, role: GroupRole, limit: TimeLimit) -> None:
    """Run this rank as the coordinator, or with its role in a group of `size` ranks, then exit the process."""
    die_with_parent(signal.SIGKILL)
    world = PoolWorld(size)
    stop = PoolStopFlag(world, limit.seconds_left)
    # SIGUSR1 stays ignored below Hydra (MPICH's mpiexec), which reports a dead rank by it (KEEP_ALIVE_SHELL).
    stop.install_handlers()
    register_rank(SearchPaths(folder).state.folder, world.rank)
    try:
        if world.rank == COORDINATOR_RANK:
            mpi_is_intact = _coordinate(world, folder, stop)
        else:
            if world.is_leader:
                start_heartbeat(heartbeat_file(folder, world.group))
            mpi_is_intact = role(world, stop)
    except PeerLostError as error:
        mpi_is_intact = False
        world.messenger.send(f"{world.describe_rank(world.rank)}: {error}", COORDINATOR_RANK, GROUP_LOST_TAG)
    if mpi_is_intact:
        exit_process(0)
    # Without Python's interpreter teardown, and without MPI.Finalize, which would block for ever.
    world.messenger.linger(FLUSH_TIME_S)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def _train(world: PoolWorld, folder: Path, stop: PoolStopFlag, limit: TimeLimit) -> bool:
    from nnlo_lib.executors.mpi_pool.rank_group import RankGroup
    from nnlo_lib.executors.mpi_pool.worker import GroupTrainer, assign_gpus, report, serve
    from nnlo_lib.train.rank_process import tune_malloc_and_timers
    from nnlo_lib.train.task import Task

    tune_malloc_and_timers()
    group = RankGroup(world, stop)
    # All ranks of the group learn of a fault on one rank.
    fault = group.first_fault(assign_gpus(world, read_config(folder)))
    if not world.is_leader:
        return serve(world, lambda text: group.train(Task.parse(text)))
    trainer = GroupTrainer(world, group, folder, stop, limit, fault)
    return serve(world, lambda numbers: report(world, trainer, numbers))


def _coordinate(world: PoolWorld, folder: Path, stop: PoolStopFlag) -> bool:
    """Run the search and write its outcome; return True if MPI is intact."""
    experiment = read_config(folder)
    search = experiment.search
    assert search is not None
    coordinator = Coordinator(
        world, folder, search.blocks, world.size * experiment.parallel.threads_per_rank, stop
    )
    try:
        # A fixed order depends on the number of fold tasks in parallel, which must not change with the ranks.
        parallel = search.parallel if search.order == "fixed" else len(world.groups) + search.blocks.ahead
        study = Study.of(folder, experiment, parallel)
        progress = ProgressLogger(coordinator, study)
        done = run_study(study, progress)
        progress.log()
        coordinator.wait_until_idle()
        status, error = 0 if done else EXIT_PREEMPTED, ""
    except NoGroupLeftError as no_group:
        status, error = NO_GROUP_STATUS, str(no_group)
    except UserError as user_error:
        status, error = EXIT_USER_ERROR, str(user_error)
    except Exception:
        status, error = 1, traceback.format_exc()
    state = SearchPaths(folder).state
    coordinator.utilization.write(state.folder)
    # Written before the ranks quit, which may fail: the launcher learns the outcome only from this file.
    with atomic_write(state.pool_outcome) as part:
        part.write_text(json.dumps({"status": status, "error": error}))
    return coordinator.shut_down()


if __name__ == "__main__":
    main()
