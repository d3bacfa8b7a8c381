"""The ranks of a block: they train together, one task after the other, and nothing is left of the one before."""

import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import torch
from mpi4py import MPI

from nnlo_lib.comm.mpi import WRECKS, MPICommunicator
from nnlo_lib.errors import UserError
from nnlo_lib.train.notes import announce, confess, stopped
from nnlo_lib.train.rank import one_rank, reduction_of
from nnlo_lib.train.task import Task
from nnlo_lib.tune.blocks.post import FAILED
from nnlo_lib.tune.blocks.wish import Wish
from nnlo_lib.tune.blocks.world import World
from nnlo_lib.tune.local import LOG

PATIENCE = 600.0  # seconds for the ranks of a block to meet after a training


class Crew:
    """This rank among those of its block. wish: says when to pause."""

    def __init__(self, world: World, wish: Wish) -> None:
        self._world, self._wish = world, wish
        self._meeting = MPICommunicator(world.comm, timeout=PATIENCE)
        self._number = FAILED

    def agree(self, fault: str) -> str:
        """Return the first fault of a rank of the block, empty if none has one; all ranks call it."""
        return next(filter(None, self._meeting.gather(fault)), "")

    def train(self, task: Task) -> list[int]:
        """Train; return the exit status that each rank would have, who leaves word in the run folder, as ever.

        Raises PeerLostError if the block is broken.
        """
        self._number += 1
        self._wish.failed = lambda: bool(self._given_up())
        ranks = self._meeting.duplicate()
        with words_into(task.folder / LOG):
            status, comm, failed = self._try(task, ranks)
        endings = self._meeting.gather([status, failed])
        if any(failed for _, failed in endings):
            comm.abandon() if comm else WRECKS.append(ranks)
        elif comm:
            comm.free()
        gc.collect()
        return [status for status, _ in endings]

    def _try(self, task: Task, ranks: MPI.Intracomm) -> tuple[int, MPICommunicator | None, bool]:
        """Return status and communicator, and whether it ended in failure, which the others then know."""
        comm, parallel = None, task.run.parallel
        try:
            announce(task.state, self._meeting.rank)
            torch.set_num_threads(parallel.threads_per_rank)
            comm = MPICommunicator(ranks, reduction_of(task.run), parallel.peer_timeout, self._given_up)
            _refuse_what_does_not_fit(task, comm.size)
            done = one_rank(task, comm, self._wish)
            return 0 if done else stopped(task.state, comm.rank, self._wish.signal), comm, False
        except BaseException as error:
            self._tell()
            return confess(task.state, self._meeting.rank, error), comm, True

    def _tell(self) -> None:
        for rank in self._world.members(self._world.block):
            if rank != self._world.rank:
                self._world.post.send(self._meeting.rank, rank, self._number)

    def _given_up(self) -> str:
        """Say who has failed, if somebody has."""
        return "another rank has failed" if self._world.post.holds(MPI.ANY_SOURCE, self._number) else ""


def _refuse_what_does_not_fit(task: Task, size: int) -> None:
    parallel = task.run.parallel
    if (parallel.transport, parallel.ranks) != ("mpi", size):
        raise UserError(
            f"parallel: {parallel.ranks} ranks by {parallel.transport} do not fit a block, {size} ranks by mpi"
        )


@contextmanager
def words_into(path: Path) -> Iterator[None]:
    """Append what this process says to a file; where the disk refuses, it is said as before."""
    before = [(stream, os.dup(stream)) for stream in (1, 2)]
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as file:
            for stream, _ in before:
                os.dup2(file.fileno(), stream)
    try:
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for stream, kept in before:
            os.dup2(kept, stream)
            os.close(kept)
