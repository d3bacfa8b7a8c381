"""Search in one MPI allocation: start its ranks, pass signals on, and see that nothing is left when they end."""

import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import NamedTuple

from nnlo_lib.config import Experiment
from nnlo_lib.errors import EXIT_USER_ERROR, UserError
from nnlo_lib.launch.launch import die_with_parent, environment, relay
from nnlo_lib.launch.limit import Limit
from nnlo_lib.launch.ranks import Ranks
from nnlo_lib.launch.segments import Segments
from nnlo_lib.launch.signals import Heard
from nnlo_lib.launch.watch import PATIENCE, Watch
from nnlo_lib.state.outcome import EXIT_PREEMPTED
from nnlo_lib.state.process import Process
from nnlo_lib.state.scheduler import Job
from nnlo_lib.state.speech import say
from nnlo_lib.tune.blocks.deaths import Deaths, NoBlockError
from nnlo_lib.tune.blocks.names import NO_BLOCK, OUTCOME, PULSE, STOPPING

VAIN = 3  # allocations one after another that all died without a result
ALONE = 120.0  # seconds that blocks have, to save and leave, after their coordinator has ended
OUTLIVE = (
    'trap "" USR1; "$@"; exit 0'  # a shell; by USR1 MPICH's mpiexec tells all others of a rank that died
)


class Come(NamedTuple):
    """What has come of a search so far: results, and blocks that died in training."""

    results: int
    deaths: int


def ranks_of(experiment: Experiment, ranks: int | None) -> int:
    """Return the size of the allocation: as told, else as the scheduler gave, else as `search.parallel` needs.

    Raises UserError if it is not one rank and whole blocks, or if the experiment does not train in blocks.
    """
    search, parallel = experiment.search, experiment.parallel
    assert search is not None
    changed = {"parallel.ranks", "parallel.transport"} & search.space.keys()
    if parallel.transport != "mpi" or changed:
        what = f"search.space: {min(changed)}" if changed else "parallel.transport: simulated"
        raise UserError(
            f"{what} does not go with --executor mpi, whose blocks have {parallel.ranks} MPI ranks each"
        )
    size = parallel.ranks
    count = ranks or int(os.environ.get("SLURM_NTASKS", 1 + search.parallel * size))
    blocks, over = divmod(count - 1, size)
    if over or not blocks:
        few = 1 + max(1, blocks) * size
        raise UserError(
            f"--ranks {count}: one coordinates, and blocks of {size} (parallel.ranks) train; take {few} or {few + size}"
        )
    return count


def search_in_blocks(
    experiment: Experiment, folder: Path, launcher: str, ranks: int, signals: Heard, lost: Event
) -> int:
    """Search with so many ranks; return 0, or 75 if it was asked to stop. Raises UserError.

    folder: of the search, whose lease this process holds; lost: that it does no more.
    """
    return outlived(
        lambda: _allocate(experiment, folder, launcher, ranks, signals, lost),
        lambda: _come(folder),
        lambda: bool(signals.first) or lost.is_set(),
    )


def outlived(allocate: Callable[[], int], come: Callable[[], Come], stopped: Callable[[], bool]) -> int:
    """Start ranks anew when no block is left of those before, and something came of them; return the status.

    Raises UserError where they would die for ever: nothing came, or VAIN times one after another no result.
    """
    vain = 0
    while True:
        before = come()
        try:
            return allocate()
        except NoBlockError as error:
            after = come()
            vain = 0 if after.results > before.results else vain + 1
            if after == before or vain == VAIN or stopped():
                again = "the same command goes on from there, with as many as before"
                raise UserError(f"{error}; {again}") from error
            say(f"warning: {error}; starting all ranks anew")


def _come(folder: Path) -> Come:
    return Come(len([*folder.glob("trials/*/*/epochs-*.json")]), Deaths(folder).all)


def _allocate(
    experiment: Experiment, folder: Path, launcher: str, ranks: int, signals: Heard, lost: Event
) -> int:
    """Search in one allocation. Raises NoBlockError if all of its blocks died before the search had ended."""
    state = folder / "state"
    _clear(state)
    if signals.first:
        return EXIT_PREEMPTED
    segments = Segments()
    arguments = [str(folder), "--size", str(experiment.parallel.ranks), *_minutes()]
    process = start(experiment, launcher, ranks, ["-m", "nnlo_lib.tune.blocks.rank", *arguments])
    watch = Overseer(state, ranks, process, signals, lost, experiment.parallel.peer_timeout)
    watch.start()
    relay(process)
    process.wait()
    watch.join()
    segments.clear()
    if watch.given_up:
        raise UserError("no rank came up in time; what the launcher said is above")
    return _status(state, watch.first)


def start(experiment: Experiment, launcher: str, ranks: int, program: list[str]) -> "subprocess.Popen[bytes]":
    """Start ranks of a Python program, of which some may die without taking the others with them."""
    variables = environment(experiment.parallel)
    variables.pop("NNLO_TERMINAL", None)
    rank, words = [sys.executable, *program], shlex.split(launcher)
    if "srun" in launcher:
        words += [
            "--kill-on-bad-exit=0",
            "--wait=0",
            f"--cpus-per-task={experiment.parallel.threads_per_rank}",
        ]
    elif _is_hydra(words, variables):
        words, rank = [*words, "-disable-auto-cleanup"], ["sh", "-c", OUTLIVE, "rank", *rank]
    try:
        return subprocess.Popen(
            [*words, "-n", str(ranks), *rank], env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            preexec_fn=die_with_parent, stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except OSError as error:
        raise UserError(f"cannot start the ranks by '{launcher}': {error}") from error


def _is_hydra(words: list[str], variables: dict[str, str]) -> bool:
    """Ask a launcher whether it is MPICH's; its kind, Intel's and others', has the same options."""
    try:
        asked = subprocess.run(
            [*words, "--version"], env=variables, capture_output=True, text=True, timeout=15,
            stdin=subprocess.DEVNULL, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return False
    return "hydra" in asked.stdout.lower()


def _minutes() -> list[str]:
    left = Limit(None, Job.current()).left
    return ["--minutes", str(left / 60)] if left < float("inf") else []


def _clear(state: Path) -> None:
    """Forget the allocation before; ranks of it that are left on this host are waited for, and ended."""
    Ranks(state / "ranks").outlast(PATIENCE)
    for folder in ("ranks", PULSE):
        shutil.rmtree(state / folder, ignore_errors=True)
    for name in (OUTCOME, STOPPING):
        (state / name).unlink(missing_ok=True)


def _status(state: Path, first: list[str]) -> int:
    try:
        outcome = json.loads((state / OUTCOME).read_text())
    except FileNotFoundError:
        who = "the coordinator, rank 0," if "0" in first else "the coordinator"
        say(f"error: {who} ended without a word; the same command goes on from there")
        return 1
    if outcome["status"] == NO_BLOCK:
        raise NoBlockError(outcome["error"])
    if outcome["status"] == EXIT_USER_ERROR:
        raise UserError(outcome["error"])
    if outcome["error"]:
        say(f"error: {outcome['error']}")
    return int(outcome["status"])


class Overseer(Watch):
    """Watches the ranks of an allocation, which outlive each other."""

    def __init__(
        self, state: Path, expected: int, child: "subprocess.Popen[bytes]", signals: Heard, lost: Event,
        timeout: float,
    ) -> None:  # fmt: skip
        super().__init__(Ranks(state / "ranks"), expected, child, signals, lost, timeout)
        self._state, self._alone = state, 0.0
        self._coordinator: Process | None = None

    def _tell(self) -> None:
        """Pass on a wish to stop, also by a file; end blocks that do not leave when their coordinator has ended."""
        super()._tell()
        if self._signals.first:
            (self._state / STOPPING).touch()
        if self._has_ended():
            self._alone = self._alone or time.monotonic()
            if time.monotonic() - self._alone > ALONE:
                self._child.kill()

    def _has_ended(self) -> bool:
        note = self._state / "ranks/0"
        if self._coordinator is None and note.exists():
            self._coordinator = Process(**json.loads(note.read_text()))
        return self._coordinator is not None and self._coordinator.is_dead
