"""A block: its leader asks the coordinator for leaves, and its ranks train them together."""

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import Any

from nnlo_lib.comm.communicator import PeerLostError
from nnlo_lib.comm.mpi import WRECKS
from nnlo_lib.errors import EXIT_USER_ERROR, UserError
from nnlo_lib.launch.attempt import Place, Wishes, attempt
from nnlo_lib.launch.launch import clear
from nnlo_lib.launch.limit import Limit
from nnlo_lib.launch.oom import kernel_kills
from nnlo_lib.launch.signals import Heard
from nnlo_lib.launch.verdict import End, verdict
from nnlo_lib.search.trial import Leaf
from nnlo_lib.state.outcome import Outcome
from nnlo_lib.state.scheduler import Job
from nnlo_lib.state.speech import say
from nnlo_lib.train.task import Task
from nnlo_lib.tune.blocks.crew import Crew, words_into
from nnlo_lib.tune.blocks.post import QUIT, REPORT, TASK, WORK
from nnlo_lib.tune.blocks.wish import Wish
from nnlo_lib.tune.blocks.world import COORDINATOR, World
from nnlo_lib.tune.config_file import read_config
from nnlo_lib.tune.local import LOG
from nnlo_lib.tune.work import train_leaf

Work = Callable[[Leaf], int]  # trains a leaf; returns what train_leaf does


def lead(world: World, work: Work) -> bool:
    """Do the work that the coordinator gives, until it says that it was all; return whether MPI is whole.

    Raises PeerLostError if the block breaks.
    """
    fellows = [COORDINATOR, *world.members(world.block)[1:]]
    while not isinstance(order := world.wait(lambda: _order(world, COORDINATOR, WORK), fellows), bool):
        started = time.time()
        status, error = _done(work, Leaf(*order))
        world.post.send([status, error, started, time.time(), bool(WRECKS)], COORDINATOR, REPORT)
    return order


def follow(world: World, train: Callable[[str], object]) -> bool:
    """Train what the leader of the block says, until the coordinator says that it was all; return the same."""
    leader = world.members(world.block)[0]
    while not isinstance(
        order := world.wait(lambda: _order(world, leader, TASK), [COORDINATOR, leader]), bool
    ):
        train(order)
    return order


def _order(world: World, source: int, tag: int) -> Any:
    """Return what to do, or what the coordinator says at the end."""
    found = world.post.take(source, tag) or world.post.take(COORDINATOR, QUIT)
    return found[1] if found else None


def _done(work: Work, leaf: Leaf) -> tuple[int, str]:
    """Return the status of a leaf's training, and what a person must know before more are trained."""
    try:
        return work(leaf), ""
    except PeerLostError:
        raise
    except UserError as error:
        return EXIT_USER_ERROR, str(error)
    except Exception as error:
        return 1, f"{type(error).__name__}: {error}"


def refusing(fault: str) -> Work:
    """Return the work of a block that cannot train at all: the coordinator ends the search with its words."""

    def work(_: Leaf) -> int:
        raise UserError(fault)

    return work


class Training:
    """The work of a leader: train leaves as a launcher does, except that the ranks are there already."""

    def __init__(self, world: World, crew: Crew, folder: Path, wish: Wish, limit: Limit) -> None:
        self._world, self._crew, self._folder, self._wish = world, crew, folder, wish
        self._experiment, self._place = read_config(folder), Place(Job.current(), limit, wish)
        self._broken: PeerLostError | None = None

    def __call__(self, leaf: Leaf) -> int:
        """Train a leaf; return what train_leaf does. Raises PeerLostError if the block is broken."""
        with words_into(leaf.folder(self._folder) / LOG):
            return train_leaf(self._experiment, self._folder, leaf, Wishes(patient=True), self._attempted)

    def _attempted(self, task: Task, wishes: Wishes) -> Outcome:
        outcome = attempt(task, wishes, self._place, self._launch)
        if outcome.error:
            say(outcome.error)
        if self._broken:
            raise self._broken
        return outcome

    def _launch(self, task: Task, _: str, limit: Limit, heard: Heard, lost: Event) -> Outcome:
        clear(task.state)
        self._wish.lost, starved = lost, kernel_kills()
        for fellow in self._world.members(self._world.block)[1:]:
            self._world.post.send(task.text, fellow, TASK)
        try:
            statuses = self._crew.train(task)
        except PeerLostError as error:
            self._broken = error
            return Outcome("peer lost", str(error))
        end = End(max(statuses), {}, [], heard.first, kernel_kills() > starved, limit)
        outcome = verdict(task, end)
        shutil.rmtree(
            task.state / "ranks", ignore_errors=True
        )  # we live on: the next launcher is not to end us
        return outcome
