"""Launcher of a search in one MPI allocation: starts its ranks, forwards signals, kills remaining ranks.

Other ranks continue if some ranks die. The number of rank groups lost per fold task is kept on disk, because the
coordinator may be lost, too.
"""

import json
import os
import shlex
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Event

from nnlo_lib.batch import BatchJob
from nnlo_lib.config import Experiment
from nnlo_lib.config.paths import SearchPaths, SearchStatePaths
from nnlo_lib.core.errors import EXIT_USER_ERROR, UserError
from nnlo_lib.core.installation import MPI_REMEDY
from nnlo_lib.core.logging_setup import get_logger
from nnlo_lib.core.process import ProcessIdentity
from nnlo_lib.launch.diagnosis import LauncherOutput
from nnlo_lib.launch.launcher import SharedMemoryCleanup, die_with_parent, rank_environment, relay_output
from nnlo_lib.launch.launcher_command import LauncherCommand, check_container, rank_python
from nnlo_lib.launch.stop_request import SignalSource, TimeLimit
from nnlo_lib.launch.watchdog import EXIT_GRACE_S, RankProcesses, Watchdog
from nnlo_lib.search.study.trial import FoldTask
from nnlo_lib.state.attempt_outcome import EXIT_PREEMPTED

logger = get_logger(__name__)

MAX_FRUITLESS_ALLOCATIONS = 3  # consecutive allocations that were lost without a new result
ORPHAN_TIMEOUT_S = 120.0  # for rank groups to save and exit after the coordinator has ended
# Ignores USR1, by which MPICH's mpiexec reports a dead rank to the other ranks. The status 0 keeps mpiexec
# from treating the exit of a rank as a failure of the job.
KEEP_ALIVE_SHELL = 'trap "" USR1; "$@"; exit 0'
NO_GROUP_STATUS = 3  # exit status of the coordinator if fold tasks but no rank groups are left


class NoGroupLeftError(UserError):
    """Fold tasks are left, but all rank groups are lost."""


def allocation_size(experiment: Experiment, ranks: int | None) -> int:
    """Return the number of ranks: `ranks`, else the scheduler's number, else as `search.parallel` needs.

    Raises UserError if it is not one rank plus complete rank groups, or if rank groups cannot run the experiment.
    """
    search, parallel = experiment.search, experiment.parallel
    assert search is not None
    changed = {"parallel.ranks", "parallel.transport"} & search.space.keys()
    if parallel.transport != "mpi" or changed:
        what = f"search.space: {min(changed)}" if changed else "parallel.transport: simulated"
        raise UserError(
            f"{what} is not supported by --executor mpi, whose rank groups have {parallel.ranks} MPI ranks each; remove "
            "the setting, or use another --executor"
        )
    size = parallel.ranks
    count = ranks or int(os.environ.get("SLURM_NTASKS", 1 + search.parallel * size))
    groups, remainder = divmod(count - 1, size)
    if remainder or not groups:
        few = 1 + max(1, groups) * size
        raise UserError(
            f"--ranks {count}: must be one coordinator plus complete rank groups of {size} ranks (parallel.ranks); "
            f"use {few} or {few + size}"
        )
    return count


def search_in_pool(
    experiment: Experiment, folder: Path, launcher: str, ranks: int, signals: SignalSource, lost: Event
) -> int:
    """Run a search on `ranks` ranks; return 0, 75 if it was asked to stop, or 1 if the coordinator failed.

    This process holds the lease of the search's folder; `lost` is set when it no longer does.
    Raises UserError if the search cannot continue.
    """
    return restart_until_done(
        lambda: _allocate(experiment, folder, launcher, ranks, signals, lost),
        lambda: (len(SearchPaths(folder).results()), FailureLog(folder).total),
        lambda: bool(signals.first) or lost.is_set(),
    )


def restart_until_done(
    allocate: Callable[[], int], read_progress: Callable[[], tuple[int, int]], stopped: Callable[[], bool]
) -> int:
    """Run the search in one allocation, and again if all rank groups are lost but made progress; return the exit status.

    `read_progress` returns the number of results, and the number of rank groups lost during a training.
    """
    fruitless = 0
    while True:
        before = read_progress()
        try:
            return allocate()
        except NoGroupLeftError as error:
            after = read_progress()
            # A new result makes up for earlier losses; allocations that only lose groups are limited.
            fruitless = 0 if after[0] > before[0] else fruitless + 1
            if after == before or fruitless == MAX_FRUITLESS_ALLOCATIONS or stopped():
                raise UserError(f"{error}; run the same command again to resume with all ranks") from error
            logger.warning(f"{error}; restarting all ranks")


def _allocate(
    experiment: Experiment, folder: Path, launcher: str, ranks: int, signals: SignalSource, lost: Event
) -> int:
    """Run a search in one allocation; return the exit status.

    Raises NoGroupLeftError if all rank groups are lost before the search has ended.
    """
    state = SearchPaths(folder).state
    # Ranks of the previous allocation may run on this host.
    RankProcesses(state.ranks).wait_then_kill(EXIT_GRACE_S)
    for old in (state.ranks, state.pool_heartbeats):
        shutil.rmtree(old, ignore_errors=True)
    for file in (state.pool_outcome, state.pool_stop):
        file.unlink(missing_ok=True)
    if signals.first:
        return EXIT_PREEMPTED
    segments = SharedMemoryCleanup()
    arguments = [str(folder), "--size", str(experiment.parallel.ranks)]
    left = TimeLimit(None, BatchJob.current()).seconds_left
    if left < float("inf"):
        arguments += ["--minutes", str(left / 60)]
    process = start_ranks(experiment, launcher, ranks, ["-m", "nnlo_lib.executors.mpi_pool.rank", *arguments])
    watch = PoolWatchdog(state, ranks, process, signals, lost, experiment.parallel.peer_timeout)
    watch.start()
    relay_output(process, LauncherOutput())
    watch.join()
    segments.remove_unused()
    if watch.start_timed_out:
        raise UserError(f"no rank started in time; see the output of '{launcher}' above")
    return _status(state, watch.first_exits)


def start_ranks(
    experiment: Experiment, launcher: str, ranks: int, program: list[str]
) -> "subprocess.Popen[bytes]":
    """Start the ranks of a Python program so that the other ranks continue if some ranks die.

    `program`: arguments of the Python interpreter. Raises UserError if the launcher cannot be started.
    """
    variables = rank_environment(experiment.parallel)
    # Trainings write to `trial.log`, where a progress bar is of no use.
    variables.pop("NNLO_TERMINAL", None)
    command = LauncherCommand(launcher, experiment, variables)
    if command.is_jsrun:
        raise UserError(f"--launcher {launcher}: jsrun cannot start rank groups; use another --executor")
    check_container(experiment, variables)
    rank, words = [*rank_python(experiment), *program], [*shlex.split(launcher), *command.placement]
    if command.is_srun:
        words += [
            # A site may configure srun to end all tasks when one fails or exits (KillOnBadExit, WaitTime).
            "--kill-on-bad-exit=0",
            "--wait=0",
            f"--cpus-per-task={experiment.parallel.threads_per_rank}",
        ]
    elif command.is_hydra:
        words, rank = [*words, "-disable-auto-cleanup"], ["sh", "-c", KEEP_ALIVE_SHELL, "rank", *rank]
    try:
        return subprocess.Popen(
            [*words, "-n", str(ranks), *rank], env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            preexec_fn=die_with_parent, stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except OSError as error:
        raise UserError(
            f"cannot start the ranks with '{launcher}': {error}; check --launcher, {MPI_REMEDY}"
        ) from error


def _status(state: SearchStatePaths, first: list[str]) -> int:
    try:
        outcome = json.loads(state.pool_outcome.read_text())
    except FileNotFoundError:
        text = "the coordinator (rank 0, which exited first)" if "0" in first else "the coordinator (rank 0)"
        logger.error(f"{text} exited without recording a result; run the same command again to resume")
        return 1
    if outcome["status"] == NO_GROUP_STATUS:
        raise NoGroupLeftError(outcome["error"])
    if outcome["status"] == EXIT_USER_ERROR:
        raise UserError(outcome["error"])
    if outcome["error"]:
        logger.error(outcome["error"])
    return int(outcome["status"])


class PoolWatchdog(Watchdog):
    """Watches the ranks of an allocation, which continue when other ranks are lost."""

    def __init__(
        self, state: SearchStatePaths, expected: int, child: "subprocess.Popen[bytes]", signals: SignalSource, lost: Event,
        timeout: float,
    ) -> None:  # fmt: skip
        super().__init__(RankProcesses(state.ranks), expected, child, signals, lost, timeout)
        self._state, self._orphaned_at = state, 0.0
        self._coordinator: ProcessIdentity | None = None

    def _forward_signal(self) -> None:
        """Forward a stop signal, also by a file; kill groups that do not exit after their coordinator."""
        super()._forward_signal()
        if self._signals.first:
            # The coordinator polls this file, because Hydra's ranks ignore the forwarded SIGUSR1.
            self._state.pool_stop.touch()
        rank_file = self._state.ranks / "0"
        if self._coordinator is None and rank_file.exists():
            self._coordinator = ProcessIdentity(**json.loads(rank_file.read_text()))
        if self._coordinator and self._coordinator.is_dead:
            self._orphaned_at = self._orphaned_at or time.monotonic()
            if time.monotonic() - self._orphaned_at > ORPHAN_TIMEOUT_S:
                self._child.kill()


class FailureLog:
    """Lost rank groups in all allocations of a search; `folder` is the folder of the search."""

    def __init__(self, folder: Path) -> None:
        self._path = SearchPaths(folder).state.pool_failures
        self._count = Counter[FoldTask]()
        for line in self._path.read_text().splitlines() if self._path.exists() else []:
            with suppress(ValueError, KeyError):  # a line that a crash cut short
                row = json.loads(line)
                self._count[FoldTask(row["trial"], row["fold"], row["epochs"])] += 1

    def __getitem__(self, fold_task: FoldTask) -> int:
        """Return the number of rank groups that were lost while they trained a fold task."""
        return self._count[fold_task]

    @property
    def total(self) -> int:
        """Number of lost rank groups over all fold tasks."""
        return self._count.total()

    def add(self, fold_task: FoldTask, why: str) -> None:
        """Count one more lost rank group; if the file cannot be written, count it in memory only."""
        self._count[fold_task] += 1
        row = {"trial": fold_task.trial, "fold": fold_task.fold, "epochs": fold_task.epochs, "why": why}
        with suppress(OSError), self._path.open("a") as file:
            file.write(json.dumps(row) + "\n")
